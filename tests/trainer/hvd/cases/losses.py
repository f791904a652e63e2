"""Losses and metrics of two ranks with different numbers of examples that count are those of one process."""

import contextlib
import io
import itertools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from horovodjob_trainer import hvd
from trainer.hvd.cases.shared import DIRECTORY, flat, message, of_one_rank, of_ranks

layers = keras.layers
sparse = keras.losses.SparseCategoricalCrossentropy
EXAMPLES, LENGTH, CLASSES, BATCH = 24, 5, 4, 12
random = np.random.default_rng(7)
# The examples of a rank have other lengths than those of the other.
words = random.integers(1, 9, (EXAMPLES, LENGTH))
lengths = 1 + np.arange(EXAMPLES) % 6 % LENGTH
words[np.arange(LENGTH) >= lengths[:, None]] = 0
targets = random.integers(0, CLASSES, (EXAMPLES, LENGTH))
weights = np.where(np.arange(EXAMPLES) % 6 < 2, 5.0, 0.5).astype(np.float32)[:, None]


def model(*, masked: bool) -> Any:
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [keras.Input((LENGTH,)), layers.Embedding(9, 8, mask_zero=masked), layers.Dense(CLASSES, "softmax")]
    )


def trained(
    optimizer: Any, loss: Any, rows: slice, labels: Any, *, masked: bool, weight: Any, traced: bool = False
) -> Any:
    """The weights after two steps with these rows of each batch."""
    network = model(masked=masked)
    network.compile(optimizer, loss, run_eagerly=not traced)
    for start in range(0, EXAMPLES, BATCH):
        part = slice(start + rows.start, start + BATCH, rows.step)
        network.train_on_batch(words[part], labels[part], None if weight is None else weight[part])
    return flat(network.weights)


def both(
    loss: Callable[[], Any],
    labels: Any = targets,
    *,
    wrap: Callable[[Any], Any] = hvd.DistributedLoss,
    masked: bool = False,
    weight: Any = None,
    passes: int | None = None,
    traced: bool = False,
) -> list[Any]:
    """The weights after a training of both ranks, and after that of one process."""
    optimizers = [keras.optimizers.SGD(0.5, gradient_accumulation_steps=passes) for _ in range(2)]
    every_second, others = slice(hvd.rank(), None, 2), {"masked": masked, "weight": weight}
    together = trained(
        hvd.DistributedOptimizer(optimizers[0]), wrap(loss()), every_second, labels, traced=traced, **others
    )
    alone = of_one_rank(0, trained, optimizers[1], loss(), slice(0, None, 1), labels, **others)
    return [together, alone]


def test_a_distributed_loss_trains_as_one_process() -> None:
    ignored = np.where(words == 0, -1, targets)

    def weighted() -> Any:
        return sparse(reduction="mean_with_sample_weight")

    forms = {
        "masked": both(sparse, masked=True, traced=True),
        "ignored class": both(lambda: sparse(ignore_class=-1), ignored),
        "ignored class and mask": both(lambda: sparse(ignore_class=2), masked=True),
        "weights": both(weighted, weight=weights),
        "weights and mask": both(weighted, masked=True, weight=np.repeat(weights, LENGTH, 1)),
        "accumulated": both(sparse, masked=True, passes=2, traced=True),
    }
    for name, (together, alone) in forms.items():
        np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-6, err_msg=name)
    average, alone = both(sparse, wrap=lambda loss: loss, masked=True)
    assert not np.allclose(average, alone, rtol=1e-3, atol=1e-4), "the average of the means of the ranks is another"


def test_a_distributed_loss_reports_the_loss_of_one_process_for_batches_of_different_sizes() -> None:
    for masked in (False, True):
        network = model(masked=masked)
        network.compile(
            hvd.DistributedOptimizer(keras.optimizers.SGD(0.5)), hvd.DistributedLoss(sparse()), run_eagerly=True
        )
        rows = slice(0, EXAMPLES - 3) if hvd.rank() == 0 else slice(EXAMPLES - 3, EXAMPLES)
        arguments = {"batch_size": EXAMPLES, "epochs": 2, "shuffle": False, "verbose": 0}
        callbacks = [hvd.callbacks.MetricAverageCallback()]
        fit = network.fit(words[rows], targets[rows], callbacks=callbacks, **arguments)
        expected = of_one_rank(1, losses_of_one_process, masked=masked)
        np.testing.assert_allclose(fit.history["loss"], expected, rtol=1e-5)


def losses_of_one_process(*, masked: bool) -> list[float]:
    """The loss of each of two steps with all examples."""
    network, found = model(masked=masked), []
    network.compile(keras.optimizers.SGD(0.5), sparse(), run_eagerly=True)
    for _ in range(2):
        network.reset_metrics()
        found.append(float(network.train_on_batch(words, targets)))
    return found


def test_a_distributed_loss_is_saved_as_one_of_keras_and_refuses_what_is_no_mean() -> None:
    network = model(masked=True)
    network.compile("sgd", hvd.DistributedLoss(sparse()))
    network.save(DIRECTORY / f"loss-{hvd.rank()}.keras")
    assert message(lambda: hvd.DistributedLoss("mse")) == (
        "TypeError: DistributedLoss needs an object such as keras.losses.MeanSquaredError(), not 'mse'"
    )
    assert message(lambda: hvd.DistributedLoss(sparse(reduction="sum"))) == (
        "ValueError: DistributedLoss needs a loss that is a mean, and its reduction is 'sum'"
    )


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


def measured(optimizer: Any, *, masked: bool) -> Any:
    network = model(masked=masked)
    network.compile(
        optimizer,
        sparse(),
        metrics=[
            *("accuracy", Own(), Squared(name="squared"), Largest(name="my_accuracy"), Both(name="sums")),
            *(Hits(thresholds=[0.2, 0.3], name="hits"), Score(threshold=0.25, name="score")),
        ],
        weighted_metrics=[keras.metrics.SparseCategoricalCrossentropy(name="entropy")],
        run_eagerly=True,
    )
    return network


def evaluation_of_one_process(examples: Any, *, masked: bool) -> Any:
    """The metrics of the examples of all ranks."""
    x, y, weight = map(np.concatenate, zip(*examples, strict=True))
    return measured("sgd", masked=masked).evaluate(x, y, 24, 0, weight, return_dict=True)


def test_metrics_of_training_validation_and_evaluation_are_those_of_all_examples() -> None:
    """Of a training that changes no weight. A metric with an unknown state is averaged and named."""
    parts = [tuple(each[rank::2] for each in (words, targets, weights)) for rank in range(2)]
    validated = [parts[0], tuple(each[:-2] for each in parts[1])]
    printed = io.StringIO()
    for masked in (False, True):
        network = measured(hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), masked=masked)
        x, y, weight = parts[hvd.rank()]
        arguments = {"sample_weight": weight, "verbose": 0, "callbacks": [hvd.callbacks.MetricAverageCallback()]}
        with contextlib.redirect_stderr(printed):
            fit = network.fit(x, y, batch_size=12, validation_data=validated[hvd.rank()], **arguments)
            evaluated = {} if masked else network.evaluate(x, y, batch_size=6, return_dict=True, **arguments)
        found = {name: value[0] for name, value in fit.history.items()}
        found |= {f"evaluate_{name}": value for name, value in evaluated.items()}
        of_training = ("",) if masked else ("", "evaluate_")
        for rank, (prefixes, examples) in enumerate(((of_training, parts), (("val_",), validated))):
            alone = of_one_rank(rank, evaluation_of_one_process, examples, masked=masked)
            for prefix, (name, value) in itertools.product(prefixes, alone.items()):
                # A masked loss is the mean of the means of batches, which are others in one process. Keras reads the
                # variable of the training's hits after the validation.
                if name == "my_accuracy" or (name == "hits" and not prefix) or (name == "loss" and masked):
                    continue
                np.testing.assert_allclose(found[prefix + name], value, rtol=1e-5, err_msg=prefix + name)
    text = "".join(of_ranks(printed.getvalue()))
    assert text.count("the metric my_accuracy is the average of the ranks, weighted by their examples") == 1
    assert text.count("Horovod: the metric ") == 1
