"""What the cases have in common: small models, and data that are others on each rank."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from horovodjob_trainer import hvd

DIRECTORY = Path(sys.argv[1]).parent
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def model(*layers: Any) -> Any:
    """A model of six features and three classes; its last layer is Dense."""
    return keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(3)])


def data(rows: int = 16, seed: int | None = None) -> tuple[Any, Any]:
    """Examples of this rank, or of a seed."""
    random = np.random.default_rng(hvd.rank() if seed is None else seed)
    return random.normal(size=(rows, 6)).astype(np.float32), random.integers(0, 3, rows)


def sgd(**arguments: Any) -> Any:
    return hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9), **arguments)


def broadcast(**arguments: Any) -> Any:
    return hvd.callbacks.BroadcastGlobalVariablesCallback(0, **arguments)


def flat(variables: Any) -> Any:
    """The values of variables in one array."""
    return np.concatenate([np.ravel(np.asarray(variable).astype(np.float64)) for variable in variables])


def state(trained: Any) -> Any:
    """The weights of a model and the slots of its optimizer."""
    return flat([*trained.weights, *trained.optimizer.variables])


def of_ranks(value: Any) -> list[Any]:
    """The values of all ranks."""
    return list(hvd.allgather_object(value))


def of_one_rank(rank: int, compute: Callable[..., Any], *values: Any, **options: Any) -> Any:
    """What a rank computes, which all ranks would compute alike."""
    return hvd.broadcast_object(compute(*values, **options) if hvd.rank() == rank else None, root_rank=rank)


def are_equal(values: Any) -> bool:
    """Whether an array has the same bits on all ranks, and is not zero."""
    first, *others = of_ranks(np.asarray(values))
    return bool(np.any(first)) and all(np.array_equal(first, other) for other in others)


def message(use: Callable[[], Any]) -> str:
    """The type and the text of the error that a call raises."""
    try:
        use()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


@contextlib.contextmanager
def policy(name: str) -> Iterator[None]:
    """Within this context, models have this policy of types."""
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy("float32")
