"""Optimizers and their settings: equal bits on all ranks, and the weights of one process."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd
from trainer.hvd.cases.shared import LOSS, data, flat, model, of_ranks, policy

layers, optimizers = keras.layers, keras.optimizers
ROWS, WORDS = 12, 9
# Tolerated difference from a single process, relative to the change of the weights by the training. Sums in a
# different order differ in the last bits of float32, and 16-bit numbers have fewer bits.
CLOSE = 2e-5


def dense_model() -> Any:
    return model(layers.Dense(5, "tanh"))


def word_model() -> Any:
    embedding = [layers.Embedding(WORDS, 4), layers.GlobalAveragePooling1D(), layers.Dense(3)]
    return keras.Sequential([keras.Input((6,), dtype="int32"), *embedding])


@dataclass(frozen=True)
class Way:
    """An optimizer, the arguments of DistributedOptimizer, and the model."""

    optimizer: Callable[[], Any]
    arguments: Callable[[Any], dict[str, Any]] = field(default=lambda model: {})
    model: Callable[[], Any] = dense_model
    policy: str = "float32"
    tolerance: float = CLOSE
    alone: Callable[[], Any] | None = None
    """The optimizer of the single process, if it is a different one."""
    overflow: bool = False
    """Whether the gradients of one rank are not finite in one step."""
    ranks: int = field(default_factory=hvd.size)
    traced: bool = False
    """Whether `fit` compiles its steps; the others, and those of the single process, are faster as a loop."""
    steps: int = 2


def trained(way: Way, rows: slice, *, distributed: bool) -> tuple[Any, Any, Any]:
    """The weights before and after training on these rows of each batch, and the variables of the optimizer."""
    keras.utils.set_random_seed(11)
    network = way.model()
    optimizer = way.optimizer() if distributed or way.alone is None else way.alone()
    if distributed:
        optimizer = hvd.DistributedOptimizer(optimizer, **way.arguments(network))
    network.compile(optimizer, LOSS)
    optimizer = network.optimizer  # which scales the loss for float16
    optimizer.build(network.trainable_variables)  # otherwise the first step is traced twice
    before = flat(network.weights)
    for step in range(way.steps):
        features, labels = data(ROWS, seed=step)
        if way.model is word_model:
            features = np.random.default_rng(step).integers(0, WORDS, (ROWS, 6))
        if way.overflow and step == 1:
            features[0] = np.inf  # only on the first rank
        if way.traced and distributed:
            network.train_on_batch(features[rows], labels[rows])
            continue
        with tf.GradientTape() as tape:
            loss = optimizer.scale_loss(LOSS(labels[rows], network(features[rows])))
        weights = network.trainable_variables
        optimizer.apply(tape.gradient(loss, [weight.value for weight in weights]), weights)
    return before, flat(network.weights), flat(optimizer.variables)


def check(ways: dict[str, Way]) -> None:
    """Compare the ranks, and each way with one process with the whole batches: the ranks divide these trainings."""
    gaps, rank, size = {}, hvd.rank(), hvd.size()
    share = slice(rank * ROWS // size, (rank + 1) * ROWS // size)
    for number, (name, way) in enumerate(ways.items()):
        with policy(way.policy):
            before, weights, slots = trained(way, share, distributed=True)
            first, *others = of_ranks(np.concatenate([weights, slots]))[: way.ranks]
            for other in others:
                np.testing.assert_array_equal(other, first, err_msg=name)
            if rank == number % way.ranks:
                _, alone, _ = trained(way, slice(ROWS * way.ranks // size), distributed=False)
                gap = float(np.linalg.norm(weights - alone) / np.linalg.norm(alone - before))
                if not gap < way.tolerance:
                    gaps[name] = gap
    assert [each for each in of_ranks(gaps) if each] == []


def test_every_optimizer_that_keras_ships_trains_as_in_one_process() -> None:
    def two_optimizers() -> Any:
        return optimizers.OptimizerMap(optimizers.Adam(0.02), {".*kernel": optimizers.SGD(0.1)})

    ways = {
        "LossScaleOptimizer": Way(lambda: optimizers.LossScaleOptimizer(optimizers.Adam(0.02)), model=model),
        "MultiOptimizer": Way(lambda: optimizers.MultiOptimizer(two_optimizers()), model=model),
    }
    kinds = {name: kind for name, kind in vars(optimizers).items() if isinstance(kind, type)}
    for name, kind in sorted(kinds.items()):
        if issubclass(kind, optimizers.Optimizer) and name not in (*ways, "Optimizer"):
            ways[name] = Way(lambda kind=kind: kind(learning_rate=0.02), model=model)  # type: ignore[misc]
    assert {"Adam", "AdamW", "Adafactor", "Muon", "RMSprop", "SGD"} < set(ways)
    check(ways)


def excluding(names: list[str]) -> Any:
    optimizer = optimizers.AdamW(0.05, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=names)
    return optimizer


def test_settings_of_optimizers_apply_to_the_averages() -> None:
    sgd, adam = optimizers.SGD, optimizers.Adam
    overflowing = partial(Way, policy="mixed_float16", overflow=True, tolerance=0.01, traced=True)
    check(
        {
            "global_clipnorm": Way(lambda: sgd(0.5, global_clipnorm=0.05)),
            "clipvalue": Way(lambda: sgd(0.5, clipvalue=0.01)),
            "moving average": Way(lambda: adam(0.02, use_ema=True, ema_overwrite_frequency=1, amsgrad=True)),
            "excluded from weight decay": Way(lambda: excluding(["bias"])),
            "accumulation": Way(
                lambda: sgd(0.1, gradient_accumulation_steps=2, global_clipnorm=0.05), traced=True, steps=4
            ),
            "accumulation of slices": Way(
                lambda: sgd(0.1, gradient_accumulation_steps=2), model=word_model, traced=True, steps=4
            ),
            "slices": Way(lambda: adam(0.02), model=word_model, traced=True),
            "two types": Way(lambda: sgd(0.1), model=lambda: model(layers.Dense(5, "tanh", dtype="float64"))),
            "slices of bfloat16": Way(lambda: sgd(0.1), model=word_model, policy="bfloat16", tolerance=0.05),
            "mixed_bfloat16": Way(lambda: sgd(0.1), policy="mixed_bfloat16", tolerance=0.02),
            "one rank overflows": overflowing(lambda: optimizers.LossScaleOptimizer(sgd(0.1, momentum=0.9))),
            "one rank overflows while accumulating": overflowing(
                lambda: optimizers.LossScaleOptimizer(sgd(0.1, gradient_accumulation_steps=2)),
                steps=5,  # of which one is skipped: no rank keeps accumulated gradients of its own
            ),
        }
    )


class AddingOptimizer(keras.optimizers.Optimizer):  # type: ignore[misc]
    """Adds the gradient to the variable."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        self.assign_add(variable, gradient)


def test_passes_are_averaged_or_summed_for_shared_and_for_local_variables() -> None:
    """Variables x and y with the loss x - (rank + 1) * y[0], of which the gradient of y is sparse."""
    passes, size = 2, hvd.size()
    factor = float(hvd.rank() + 1)
    for average, is_local in ((True, False), (False, False), (False, True)):
        x, y = keras.Variable([0.0]), keras.Variable([1.0, 2.0])
        optimizer = hvd.DistributedOptimizer(
            AddingOptimizer(learning_rate=0.1),
            backward_passes_per_step=passes,
            average_aggregated_gradients=average,
            sparse_as_dense=True,
        )
        for variable in (x, y) if is_local else ():
            optimizer.register_local_var(variable)
        optimizer.build([x, y])

        @tf.function  # type: ignore[untyped-decorator]
        def step() -> None:
            with tf.GradientTape() as tape:
                loss = x.value - factor * tf.gather(y.value, [0])  # noqa: B023
            optimizer.apply(tape.gradient(loss, [x.value, y.value]), [x, y])  # noqa: B023

        scale = (1 if average else passes) / (size if is_local else 1)
        mean = factor if is_local else (size + 1) / 2
        for number in range(2 * passes + 1):
            step()
            updates = (number + 1) // passes
            assert int(optimizer.iterations) == updates
            np.testing.assert_allclose(x, [updates * scale])
            np.testing.assert_allclose(y, [1.0 - updates * scale * mean, 2.0])
