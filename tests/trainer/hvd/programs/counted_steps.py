"""Losses and metrics over ranks with different numbers of examples that count: `counted_steps.py DIRECTORY`.

One process has all examples, each of two ranks every second one. The results are in `counted-RANKS.json`.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd

layers, losses = keras.layers, keras.losses
hvd.init()
SIZE, RANK, EXAMPLES, LENGTH, CLASSES, BATCH = hvd.size(), hvd.rank(), 24, 5, 4, 12
random = np.random.default_rng(7)
# The examples of a rank have other lengths than those of the other.
words = random.integers(1, 9, (EXAMPLES, LENGTH))
lengths = 1 + np.arange(EXAMPLES) % 6 % LENGTH
words[np.arange(LENGTH) >= lengths[:, None]] = 0
targets = random.integers(0, CLASSES, (EXAMPLES, LENGTH))
ignored = np.where(words == 0, -1, targets)
weights = np.where(np.arange(EXAMPLES) % 6 < 2, 5.0, 0.5).astype(np.float32)[:, None]
sparse = losses.SparseCategoricalCrossentropy


class Own(keras.metrics.Metric):  # type: ignore[misc]
    """A sum of a user."""

    state_is_sum = True

    def __init__(self, name: str = "own", **others: Any) -> None:
        super().__init__(name=name, **others)
        self.value = self.add_variable((), "zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.value.assign_add(keras.ops.sum(keras.ops.max(y_pred, axis=-1)))

    def result(self) -> Any:
        return self.value * 1.0  # Keras would read a variable only after the validation has reset it


class Squared(keras.metrics.Mean):  # type: ignore[misc]
    """A mean of a user."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return super().update_state(keras.ops.square(keras.ops.max(y_pred, axis=-1)), sample_weight)


class Largest(Squared):
    """A state that is not a sum, with a name that ends as that of another metric."""

    def result(self) -> Any:
        return self.total * 1.0


class Both(Own):
    """Two results of a sum."""

    def result(self) -> Any:
        return {"both": self.value * 1.0, "both_root": keras.ops.sqrt(self.value)}


class Hits(keras.metrics.TruePositives):  # type: ignore[misc]
    """A vector, of which Keras returns the variable."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        super().update_state(keras.ops.equal(y_true, 0), y_pred[..., 0])


class Score(keras.metrics.F1Score):  # type: ignore[misc]
    """A vector of one element, of which Keras writes a number to the logs."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        label = keras.ops.cast(keras.ops.equal(y_true, 0), "float32")
        super().update_state(keras.ops.reshape(label, (-1, 1)), keras.ops.reshape(y_pred[..., 0], (-1, 1)))


def model(mask_zero: bool) -> Any:
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [keras.Input((LENGTH,)), layers.Embedding(9, 8, mask_zero=mask_zero), layers.Dense(CLASSES, "softmax")]
    )


def trained(loss: Any, labels: Any, *, mask_zero: bool = False, weight: Any = None, **arguments: Any) -> list[float]:
    """The weights after two steps."""
    network = model(mask_zero)
    # The single process is only the measure, and two eager steps are faster than tracing one.
    network.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.5, **arguments)), loss, run_eagerly=SIZE == 1)
    for step in range(2):
        rows = slice(step * BATCH + RANK, (step + 1) * BATCH, SIZE)
        network.train_on_batch(words[rows], labels[rows], None if weight is None else weight[rows])
    return [float(value) for each in network.get_weights() for value in each.ravel()]


def reported(mask_zero: bool) -> list[float]:
    """The losses of two epochs in which the first rank has more examples than the others."""
    network = model(mask_zero)
    network.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.5)), hvd.DistributedLoss(sparse()))
    end = EXAMPLES - 3 * (SIZE - 1)
    rows = slice(0, end) if RANK == 0 else slice(end + 3 * (RANK - 1), end + 3 * RANK)
    callbacks = [hvd.callbacks.MetricAverageCallback()]
    arguments = {"batch_size": EXAMPLES, "epochs": 2, "shuffle": False, "verbose": 0}
    history = network.fit(words[rows], targets[rows], callbacks=callbacks, **arguments)
    return [float(value) for value in history.history["loss"]]


def measured(mask_zero: bool) -> dict[str, Any]:
    """The metrics of a fit with validation, and of an evaluation."""
    network = model(mask_zero)
    network.compile(
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)),
        sparse(),
        metrics=[
            *("accuracy", Own(), Squared(name="squared"), Largest(name="my_accuracy"), Both(name="sums")),
            *(Hits(thresholds=[0.2, 0.3], name="hits"), Score(threshold=0.25, name="score")),
        ],
        weighted_metrics=[keras.metrics.SparseCategoricalCrossentropy(name="entropy")],
    )
    rows = slice(RANK, EXAMPLES, SIZE)
    part = words[rows], targets[rows], weights[rows]
    average = hvd.callbacks.MetricAverageCallback()
    validation = tuple(each[: len(each) - RANK * 2] for each in part) if SIZE > 1 else known_validation()
    arguments = {"sample_weight": part[2], "verbose": 0, "callbacks": [average]}
    history = network.fit(*part[:2], batch_size=len(part[0]), validation_data=validation, **arguments)
    evaluated = network.evaluate(*part[:2], batch_size=3, return_dict=True, **arguments)
    return {name: np.asarray(value[0]).tolist() for name, value in history.history.items()} | {
        f"evaluate_{name}": np.asarray(value).tolist() for name, value in evaluated.items()
    }


def known_validation() -> Any:
    """The examples that two ranks validate, for one process."""
    rows = [*range(0, EXAMPLES, 2), *range(1, EXAMPLES - 4, 2)]
    return words[rows], targets[rows], weights[rows]


exact: dict[str, Callable[[], list[float]]] = {
    "masked": lambda: trained(hvd.DistributedLoss(sparse()), targets, mask_zero=True),
    "ignored class": lambda: trained(hvd.DistributedLoss(sparse(ignore_class=-1)), ignored),
    "both": lambda: trained(hvd.DistributedLoss(sparse(ignore_class=2)), targets, mask_zero=True),
    "weights": lambda: trained(
        hvd.DistributedLoss(sparse(reduction="mean_with_sample_weight")), targets, weight=weights
    ),
    "weights and mask": lambda: trained(
        hvd.DistributedLoss(sparse(reduction="mean_with_sample_weight")),
        targets,
        mask_zero=True,
        weight=np.repeat(weights, LENGTH, 1),
    ),
    "accumulated": lambda: trained(
        hvd.DistributedLoss(sparse()), targets, mask_zero=True, gradient_accumulation_steps=2
    ),
}  # fmt: skip
found: dict[str, Any] = {name: run() for name, run in exact.items()}
found["not exact"] = trained(sparse(), targets, mask_zero=True)
found["reported"] = [*reported(False), *reported(True)]
found["metrics"], found["masked metrics"] = measured(False), measured(True)
if SIZE == 1:
    network = model(True)
    network.compile("sgd", hvd.DistributedLoss(sparse()))
    network.save(Path(sys.argv[1]) / "loss.keras")
    for given in ("mse", sparse(reduction="sum")):
        try:
            hvd.DistributedLoss(given)
        except (TypeError, ValueError) as error:
            found.setdefault("errors", []).append(str(error))
# Statistics of data whose mean is much larger than its deviation.
inputs = random.normal(1000, 1, (EXAMPLES * 4, 6)).astype(np.float32)
normalization = layers.BatchNormalization(synchronized=True, momentum=0.0)
normalization.build((None, 1, 6))
mask = tf.ones((EXAMPLES * 4 // SIZE, 1), tf.bool)
outputs = normalization(inputs[RANK::SIZE][:, None], training=True, mask=mask)
found["variance"] = [float(value) for value in np.array(normalization.moving_variance)]
found["expected variance"] = [float(value) for value in inputs.astype(np.float64).var(axis=0)]
if RANK == 0:
    Path(sys.argv[1], f"counted-{SIZE}.json").write_text(json.dumps(found))
hvd.allgather_object(None)
