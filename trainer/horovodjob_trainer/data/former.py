"""Former names, for the training loop that still imports them."""

from typing import Any

from horovodjob_trainer.data.arrays import Arrays as Split
from horovodjob_trainer.data.opening import opened
from horovodjob_trainer.data.order import Rows, rows_at
from horovodjob_trainer.data.request import Request
from horovodjob_trainer.data.source import Dataset

__all__ = ["Split", "dataset", "rows_of_step"]


def dataset(configuration: Any) -> Dataset:
    return opened(Request(dataset=configuration.dataset.value, archive=configuration.archive))


def rows_of_step(step: int, *, samples: int, batch: int, rank: int, size: int, seed: int) -> Rows:
    return rows_at(step * size * batch, samples=samples, batch=batch, rank=rank, size=size, seed=seed)
