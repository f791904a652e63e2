"""Data sets: where they come from, whether they are whole, and which rows a step reads.

Nothing here loads TensorFlow before a source is read.
"""

from horovodjob_trainer.data.cifar import ANY_SHA256
from horovodjob_trainer.data.digits import digits
from horovodjob_trainer.data.loader import opened
from horovodjob_trainer.data.request import CACHES, NAMES, Request, problem
from horovodjob_trainer.data.sampling import Rows, rows_at
from horovodjob_trainer.data.source import Dataset, Source
from horovodjob_trainer.data.unlabelled import unlabelled

__all__ = [
    "ANY_SHA256",
    "CACHES",
    "NAMES",
    "Dataset",
    "Request",
    "Rows",
    "Source",
    "digits",
    "opened",
    "problem",
    "rows_at",
    "unlabelled",
]
