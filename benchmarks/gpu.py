"""What one GPU does with the trainer: the cost of its layer, the wait for input, the gain of precision and prefetch.

    python benchmarks/gpu.py [--rounds 3] [--steps 40] [--only PART] [--small]

`layer` compares steps of `fit` of plain Keras with those of `hvd.DistributedOptimizer` and its callbacks, and with
`hvd.RunCallback`, on a constant batch that stays on the device. `input` compares steps on such a batch with steps on
the trainer's own input: the tutorial's network on pictures of CIFAR-10's size, and ResNet-50 on JPEG files. Ways take
turns in one process, after a warm-up, and the ratios are the medians of those of the rounds. With `--small` it tests
itself on a machine without a GPU. Exit status: 0 if all targets are met, 1 if not.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import input_pipeline
import keras
import tensorflow as tf
from input_pipeline import SIDE, STEPS, image_files, pictures, report, write_files

from horovodjob_trainer import hvd, models
from horovodjob_trainer.data.order import Steps
from horovodjob_trainer.data.source import Source
from horovodjob_trainer.launch import usable_cores
from horovodjob_trainer.run import pipeline

LAYER, BUSY = 0.02, 0.95  # targets: what the layer adds to a step, and the share of the time with input that computes
POLICIES = ("float32", "mixed_bfloat16")
LOSS = "sparse_categorical_crossentropy"
Ways = Mapping[str, Callable[[], float]]
"""Each returns the seconds of a step."""


def network(name: str, small: bool) -> tuple[Any, int, int]:
    """The model, its batch size and its number of classes."""
    if name == "tutorial" or small:
        return models.build_model("tutorial", shape=(32, 32, 3), classes=10), 32, 10
    model = keras.applications.ResNet50(weights=None, classes=1000)
    return model, 128, 1000


class Clock(keras.callbacks.Callback):  # type: ignore[misc]
    """The seconds of a step within an epoch, without its begin and its end."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.first, self.last, self.seconds = steps // 4, steps - 1, 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Wait for the device, then read the clock."""
        if batch in (self.first, self.last):
            float(tf.reshape(self.model.trainable_variables[0].value, [-1])[0])
            now = time.perf_counter()
            self.seconds = now if batch == self.first else (now - self.seconds) / (self.last - self.first)


def fitted(name: str, way: str, folder: Path, *, steps: int, small: bool) -> Callable[[], float]:
    """`fit` on a constant batch, with the callbacks of this way."""
    model, batch, classes = network(name, small)
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
    if way != "Keras":
        optimizer = hvd.DistributedOptimizer(optimizer)
    model.compile(optimizer, LOSS, metrics=["accuracy"], jit_compile=False)
    images = tf.random.uniform([batch, *model.input_shape[1:]])
    labels = tf.random.uniform([batch], maxval=classes, dtype=tf.int32)
    data = pipeline.prefetched_to_device(tf.data.Dataset.from_tensors((images, labels)).cache().repeat())
    rounds = iter(range(1000))

    def run() -> float:
        clock = Clock(steps)
        callbacks: list[Any] = [clock]
        if way == "hvd's callbacks":
            callbacks += [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
        if way == "hvd.RunCallback":
            callbacks += [hvd.RunCallback(folder / f"{next(rounds)}")]
        model.fit(data, steps_per_epoch=steps, epochs=1, verbose=0, callbacks=callbacks)
        return clock.seconds

    return run


def stepped(name: str, source: Source, batches: Steps, *, steps: int, threads: int, small: bool, crop: bool) -> Ways:
    """Steps of the network on a constant batch and on the trainer's input, with and without its prefetch."""
    model, batch, _ = network(name, small)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), LOSS, jit_compile=False)
    augment = None if crop else input_pipeline.CHANGES
    prepare = pipeline.batch_preparation(source, batch=batch, seed=1, augment=augment)
    run = tf.function(lambda batch: model.train_step(prepare(*batch)), autograph=False)

    def elements(prefetched: bool) -> Iterator[Any]:
        original = pipeline.prefetched_to_device
        if not prefetched:
            pipeline.prefetched_to_device = lambda data: data
        try:
            return iter(pipeline.training_batches(source, batches, threads=threads, crop=crop))
        finally:
            pipeline.prefetched_to_device = original

    with tf.device("/GPU:0" if tf.config.list_logical_devices("GPU") else "/CPU:0"):
        constant = tf.nest.map_structure(tf.identity, next(elements(True)))

    def same() -> Iterator[Any]:
        while True:
            yield constant

    def seconds(make: Callable[[], Iterator[Any]]) -> Callable[[], float]:
        given = make()

        def measure() -> float:
            for _ in range(8):  # queues that were filled while others ran are emptied
                logs = run(next(given))
            float(logs["loss"])
            started = time.perf_counter()
            for _ in range(steps):
                logs = run(next(given))
            float(logs["loss"])
            return (time.perf_counter() - started) / steps

        return measure

    return {
        "constant batch": seconds(same),
        "input": seconds(lambda: elements(True)),
        "input without prefetch": seconds(lambda: elements(False)),
    }


def compare(ways: Ways, rounds: int, floor: str) -> dict[str, float]:
    """Print the milliseconds of a step of each way, and return the median ratios to the floor."""
    for way in ways.values():
        way()
    found: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds):
        for name in list(ways)[:: 1 if turn % 2 else -1]:
            found[name].append(ways[name]())
    ratios = {}
    for name, times in found.items():
        ratios[name] = statistics.median(own / base for own, base in zip(times, found[floor], strict=True))
        spread = f"{min(times) * 1000:.2f} to {max(times) * 1000:.2f}"
        median = statistics.median(times) * 1000
        print(f"  {name:<24} {median:8.2f} ms a step  ({spread}), {ratios[name]:.3f} of {floor}", flush=True)
    return ratios


def layer(given: argparse.Namespace, folder: Path) -> Iterator[bool]:
    """What the layer adds to a step at one rank."""
    for name in ("tutorial", "resnet50"):
        for policy in POLICIES if name == "resnet50" else POLICIES[:1]:
            keras.config.set_dtype_policy(policy)
            steps = given.steps * (1 if name == "resnet50" else 5)
            print(f"fit of {name}, {policy}", flush=True)
            ways = {
                way: fitted(name, way, folder / name / policy, steps=steps, small=given.small)
                for way in ("Keras", "hvd's callbacks", "hvd.RunCallback")
            }
            ratios = compare(ways, given.rounds, "Keras")
            for way in list(ways)[1:]:
                added = ratios[way] - 1
                yield report(f"{way}: {added:+.1%}", f"{LAYER:.0%} or less", added <= LAYER)
    keras.config.set_dtype_policy("float32")


def inputs(given: argparse.Namespace, folder: Path) -> Iterator[bool]:
    """How much of the time with input the device computes."""
    write_files(folder)
    sources: tuple[tuple[str, str, Source, bool], ...] = (
        ("tutorial", "float32", pictures(), False),
        ("resnet50", "mixed_bfloat16", image_files(folder), True),
    )
    for name, policy, source, crop in sources:
        if given.small and name == "resnet50":
            continue
        keras.config.set_dtype_policy(policy)
        batches = STEPS if name == "tutorial" else Steps(batch=128, seed=1)
        what = f"JPEG files at {SIDE} x {SIDE}" if crop else "pictures of 32 x 32"
        print(f"steps of {name}, {policy}, on {what}, {given.threads} threads", flush=True)
        steps = given.steps * (5 if name == "tutorial" else 1)
        ways = stepped(name, source, batches, steps=steps, threads=given.threads, small=given.small, crop=crop)
        busy = 1 / compare(ways, given.rounds, "constant batch")["input"]
        yield report(f"busy {busy:.1%}", f"{BUSY:.0%} or more", busy >= BUSY)
    keras.config.set_dtype_policy("float32")


PARTS = {"layer": layer, "input": inputs}


def main() -> int:
    """Prints the comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--steps", type=int, default=40, help="steps of ResNet-50 in a round; five times for small ones"
    )
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--only", choices=PARTS, action="append", help="measure only this part")
    parser.add_argument("--small", action="store_true", help="the tutorial's network everywhere, to test the program")
    given = parser.parse_args()
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    names = [tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name) for gpu in gpus]
    if not gpus and not given.small:
        print("gpu: there is no GPU; --small tests the program without one", file=sys.stderr)
        return 2
    print(f"{', '.join(names) or 'no GPU'}, TensorFlow {tf.__version__}, medians of {given.rounds} rounds", flush=True)
    met: list[bool] = []
    for part in given.only or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            met += PARTS[part](given, Path(folder))
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
