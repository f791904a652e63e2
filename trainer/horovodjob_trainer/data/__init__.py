"""Data sets: formats, downloads, integrity checks and sampling.

The package imports TensorFlow only when a source is read.
"""

from horovodjob_trainer.data.elements import Elements
from horovodjob_trainer.data.formats.digits import digits
from horovodjob_trainer.data.loader import load_dataset, unlabelled_examples
from horovodjob_trainer.data.order import Rows, Steps, step_rows
from horovodjob_trainer.data.ranks import Ranks
from horovodjob_trainer.data.request import ANY_SHA256, CACHES, CROPS, SHUFFLES, Request
from horovodjob_trainer.data.request_check import NAMES, request_error
from horovodjob_trainer.data.source import Dataset, Source

__all__ = [
    "ANY_SHA256",
    "CACHES",
    "CROPS",
    "NAMES",
    "SHUFFLES",
    "Dataset",
    "Elements",
    "Ranks",
    "Request",
    "Rows",
    "Source",
    "Steps",
    "digits",
    "load_dataset",
    "request_error",
    "step_rows",
    "unlabelled_examples",
]
