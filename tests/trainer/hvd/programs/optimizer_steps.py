"""Trains a few steps with every method to apply gradients: `optimizer_steps.py DIRECTORY`.

Each rank trains on its part of the batches and, in a single process with a plain optimizer, on the whole batches. For
each method, it writes a digest of its weights and their difference from the single process, relative to the change.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd

ROWS, STEPS, WORDS = 12, 4, 9
optimizers = keras.optimizers
ALSO_IN_THREE = ("accumulation", "bf16 compression", "one rank overflows while accumulating", "slices")


def dense_model() -> Any:
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(5, "tanh"), keras.layers.Dense(3)])


def one_layer_model() -> Any:
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)])


def word_model() -> Any:
    layers = [keras.layers.Embedding(WORDS, 4), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(3)]
    return keras.Sequential([keras.Input((6,), dtype="int32"), *layers])


def two_types_model() -> Any:
    layers = [keras.layers.Dense(5, "tanh", dtype="float64"), keras.layers.Dense(3)]
    return keras.Sequential([keras.Input((6,)), *layers])


@dataclass(frozen=True)
class Way:
    """An optimizer, the arguments of DistributedOptimizer, and the model."""

    optimizer: Callable[[], Any]
    arguments: Callable[[Any], dict[str, Any]] = field(default=lambda model: {})
    model: Callable[[], Any] = dense_model
    policy: str = "float32"
    alone: Callable[[], Any] | None = None
    """The optimizer of the single process, if it is a different one."""
    overflow: bool = False
    """Whether the gradients of one rank overflow in one step."""
    ranks: int | None = None
    """Number of ranks that train together, if not all do."""
    eager: bool = False
    """Whether each step runs eagerly: for the arithmetic of Keras, which is that of the other ways."""


def excluding(names: list[str]) -> Any:
    optimizer = optimizers.AdamW(0.05, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=names)
    return optimizer


def shipped() -> dict[str, Way]:
    """Every optimizer class of Keras."""
    ways = {}
    for name in sorted(dir(optimizers)):
        kind = getattr(optimizers, name)
        if not (isinstance(kind, type) and issubclass(kind, optimizers.Optimizer)) or kind is optimizers.Optimizer:
            continue
        if kind is optimizers.LossScaleOptimizer:
            ways[name] = Way(lambda: optimizers.LossScaleOptimizer(optimizers.Adam(0.02)), model=one_layer_model)
        elif kind is optimizers.MultiOptimizer:
            ways[name] = Way(lambda: optimizers.MultiOptimizer(two_optimizers()), model=one_layer_model)
        else:
            ways[name] = Way(lambda kind=kind: kind(learning_rate=0.02), model=one_layer_model)  # type: ignore[misc]
    return ways


def two_optimizers() -> Any:
    return optimizers.OptimizerMap(optimizers.Adam(0.02), {".*kernel": optimizers.SGD(0.1)})


def settings() -> dict[str, Way]:
    """The settings of optimizers and of DistributedOptimizer."""
    sgd, adam = optimizers.SGD, optimizers.Adam
    bf16, fp16 = hvd.Compression.bf16, hvd.Compression.fp16
    decay = optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    return {
        "momentum": Way(lambda: sgd(0.1, momentum=0.9, nesterov=True), eager=True),
        "schedule": Way(lambda: sgd(decay), eager=True),
        "clipnorm": Way(lambda: sgd(0.5, clipnorm=0.05), eager=True),
        "global_clipnorm": Way(lambda: sgd(0.5, global_clipnorm=0.05), eager=True),
        "clipvalue": Way(lambda: sgd(0.5, clipvalue=0.01), eager=True),
        "moving average": Way(lambda: adam(0.02, use_ema=True, ema_overwrite_frequency=3, amsgrad=True), eager=True),
        "weight decay": Way(lambda: adam(0.02, weight_decay=0.2), eager=True),
        "excluded from weight decay": Way(lambda: excluding(["bias"]), eager=True),
        "loss scale factor": Way(lambda: sgd(0.1, loss_scale_factor=64.0), eager=True),
        "accumulation": Way(lambda: sgd(0.1, gradient_accumulation_steps=2, global_clipnorm=0.05)),
        "accumulation of slices": Way(lambda: sgd(0.1, gradient_accumulation_steps=2), model=word_model),
        "passes, averaged": Way(
            lambda: sgd(0.1),
            lambda model: {"backward_passes_per_step": 2, "average_aggregated_gradients": True},
            alone=lambda: sgd(0.1, gradient_accumulation_steps=2),
        ),
        "passes, summed": Way(
            lambda: sgd(0.1),
            lambda model: {"backward_passes_per_step": 2},
            alone=lambda: sgd(0.2, gradient_accumulation_steps=2),
        ),
        "sum": Way(
            lambda: sgd(0.1 / hvd.size()),
            lambda model: {"op": hvd.Sum},
            alone=lambda: sgd(0.1),
        ),
        "fp16 compression": Way(lambda: sgd(0.1), lambda model: {"compression": fp16}),
        "bf16 compression": Way(lambda: sgd(0.1), lambda model: {"compression": bf16}),
        "predivided": Way(lambda: sgd(0.1), lambda model: {"gradient_predivide_factor": 4.0}),
        "buckets": Way(lambda: sgd(0.1), lambda model: {"bucket_bytes": 50}),
        "buckets of slices": Way(lambda: sgd(0.1), lambda model: {"bucket_bytes": 50}, model=word_model),
        "three groups": Way(lambda: sgd(0.1), lambda model: {"groups": 3}),
        "given groups": Way(lambda: sgd(0.1), lambda model: {"groups": [model.trainable_variables[1:3]]}),
        "slices": Way(lambda: sgd(0.1), model=word_model),
        "slices for Adam": Way(lambda: adam(0.02), model=word_model),
        "slices as dense": Way(lambda: sgd(0.1), lambda model: {"sparse_as_dense": True}, model=word_model),
        "two types": Way(lambda: sgd(0.1), model=two_types_model),
        "mixed_bfloat16": Way(lambda: sgd(0.1), policy="mixed_bfloat16"),
        "bfloat16": Way(lambda: sgd(0.1), policy="bfloat16"),
        "mixed_float16": Way(lambda: sgd(0.1), policy="mixed_float16"),
        "mixed_float16, compressed": Way(lambda: sgd(0.1), lambda model: {"compression": fp16}, policy="mixed_float16"),
        "one rank overflows": Way(
            lambda: optimizers.LossScaleOptimizer(sgd(0.1, momentum=0.9)), policy="mixed_float16", overflow=True
        ),
        "one rank overflows while accumulating": Way(
            lambda: optimizers.LossScaleOptimizer(sgd(0.1, gradient_accumulation_steps=2)),
            policy="mixed_float16",
            overflow=True,
        ),
    }


def batch(step: int, words: bool) -> tuple[Any, Any]:
    random = np.random.default_rng(step)
    features = random.integers(0, WORDS, (ROWS, 6)) if words else random.normal(size=(ROWS, 6)).astype(np.float32)
    return features, random.integers(0, 3, ROWS)


def flat(variables: list[Any]) -> Any:
    return np.concatenate([np.asarray(variable).astype(np.float64).ravel() for variable in variables])


def trained(way: Way, rows: slice, distributed: bool) -> tuple[Any, Any, Any]:
    """The weights before and after training on these rows of each batch, and the variables of the optimizer."""
    keras.utils.set_random_seed(11)
    keras.config.set_dtype_policy(way.policy)
    model = way.model()
    optimizer = way.optimizer() if distributed or way.alone is None else way.alone()
    if distributed:
        optimizer = hvd.DistributedOptimizer(optimizer, **way.arguments(model))
    # The single process is only the measure, and a few eager steps are faster than tracing one.
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, run_eagerly=way.eager or not distributed)
    model.optimizer.build(model.trainable_variables)  # otherwise the first step is traced twice
    before = flat(model.weights)
    for step in range(STEPS):
        features, labels = batch(step, way.model is word_model)
        if way.overflow and step == 1:
            features[0] = 60000.0  # only on the first rank
        model.train_on_batch(features[rows], labels[rows])
    keras.config.set_dtype_policy("float32")
    return before, flat(model.weights), flat(model.optimizer.variables)


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    ways = settings()
    if size > 2:
        ways = shipped() | {name: way for name, way in ways.items() if name in ALSO_IN_THREE}
        pair = hvd.add_process_set([0, 1])
        ways["process set"] = Way(lambda: optimizers.SGD(0.1), lambda model: {"process_set": pair}, ranks=2)
    share = slice(rank * ROWS // size, (rank + 1) * ROWS // size)
    ended = {name: trained(way, share, distributed=True) for name, way in ways.items()}
    found: dict[str, Any] = {}
    for number, (name, way) in enumerate(ways.items()):
        together = way.ranks or size
        before, weights, slots = ended[name]
        digests = [hashlib.sha256(values.tobytes()).hexdigest() for values in (weights, slots)]
        found[name] = {"ranks": together, "weights": digests[0], "slots": digests[1]}
        if rank == number % together:  # the ranks divide the trainings of the single process
            _, alone, _ = trained(way, slice(ROWS * together // size), distributed=False)
            moved = float(np.linalg.norm(alone - before))
            found[name] |= {"moved": moved, "difference": float(np.linalg.norm(weights - alone)) / moved}
    Path(sys.argv[1], f"{rank}-of-{size}.json").write_text(json.dumps({"ways": found}))
    hvd.allgather_object(None)


main()
