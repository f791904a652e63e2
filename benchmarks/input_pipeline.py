"""Training input against the tutorial's ImageDataGenerator, and training steps against steps without input.

    python benchmarks/input_pipeline.py [--rounds 5] [--batches 400] [--steps 60] [--threads N]

All ways take turns in one process on the same cores, after a warm-up: batches of 32 pictures of 32 x 32, moved by
up to a tenth and mirrored. The generator has the tutorial's four worker threads or none, whichever is quicker. Each
figure is the median of the rounds. Exit status: 0 if both targets are met, 1 if not.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["KERAS_BACKEND"] = "tensorflow"

import numpy as np
import tensorflow as tf

from horovodjob_trainer import models
from horovodjob_trainer.data.arrays import Arrays, aligned_copy
from horovodjob_trainer.launch import usable_cores
from horovodjob_trainer.run.augmentation import Augmentation
from horovodjob_trainer.run.pipeline import training_batches

BATCH = 32
PICTURES = 10_000
FASTER, SLOWER = 8.0, 0.05  # targets: batches/s against the generator's; time that input adds to a step


def pictures() -> Arrays:
    """Random pictures of CIFAR-10's shape: what they show costs neither way anything."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (PICTURES, 32, 32, 3), dtype=np.uint8)
    return Arrays(aligned_copy(images), aligned_copy(random.integers(0, 10, PICTURES)), 10)


def pipeline(source: Arrays, threads: int) -> Iterator[Any]:
    """The trainer's input."""
    changes = Augmentation(shift=0.1, flip=True)
    return iter(training_batches(source, batch=BATCH, rank=0, size=1, seed=1, augment=changes, threads=threads))


def generator(source: Arrays) -> Any:
    """The tutorial's input, as its script makes it."""
    from tf_keras.preprocessing.image import ImageDataGenerator

    scaled = source.examples.astype("float32") / 255
    made = ImageDataGenerator(width_shift_range=0.1, height_shift_range=0.1, horizontal_flip=True)
    return made.flow(scaled, source.labels, batch_size=BATCH)


def worked(source: Arrays, workers: int) -> tuple[Iterator[Any], Callable[[], None]]:
    """The tutorial's input by the threads that `fit_generator` makes of it, and how to stop them."""
    from tf_keras.utils import OrderedEnqueuer

    enqueuer = OrderedEnqueuer(generator(source))
    enqueuer.start(workers=workers, max_queue_size=10)
    return enqueuer.get(), enqueuer.stop


def rate(batches: Iterator[Any], count: int) -> float:
    """Batches per second."""
    started = time.perf_counter()
    for _ in range(count):
        next(batches)
    return count / (time.perf_counter() - started)


def compare_inputs(source: Arrays, *, rounds: int, batches: int, threads: int) -> float:
    """How many times the generator's batches/s the pipeline has."""
    ways: dict[str, Iterator[Any]] = {"pipeline": pipeline(source, threads), "generator": iter(generator(source))}
    ways["generator, 4 workers"], stop = worked(source, 4)
    counts = {name: batches if name == "pipeline" else max(20, batches // 8) for name in ways}
    for name, way in ways.items():
        rate(way, counts[name])
    stop()
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name in ways:
            if name == "generator, 4 workers":  # a queue that was filled while others ran would count as speed
                way, stop = worked(source, 4)
                rate(way, 12)
                found[name].append(rate(way, counts[name]))
                stop()
            else:
                rate(ways[name], 12)
                found[name].append(rate(ways[name], counts[name]))
    medians = {name: statistics.median(rates) for name, rates in found.items()}
    for name, rates in found.items():
        spread = f"{min(rates):7.0f} to {max(rates):.0f}"
        print(f"  {name:<22} {medians[name]:7.0f} batches/s  ({spread})", flush=True)
    return medians["pipeline"] / max(medians["generator"], medians["generator, 4 workers"])


def compare_steps(source: Arrays, *, rounds: int, steps: int, threads: int) -> float:
    """How much longer a step of the tutorial's network takes with input than on a batch that stays the same."""
    import keras

    model = models.build_model("tutorial", shape=source.shape, classes=source.classes)
    model.compile(keras.optimizers.RMSprop(1e-4), "sparse_categorical_crossentropy", jit_compile=False)
    model.make_train_function()
    batches = pipeline(source, threads)
    same = tf.data.Dataset.from_tensors(next(batches)).cache().repeat()
    ways: dict[str, Iterator[Any]] = {"constant batch": iter(same), "pipeline": batches}

    def seconds(way: Iterator[Any]) -> float:
        started = time.perf_counter()
        for _ in range(steps):
            logs = model.train_function(way)
        float(logs["loss"])
        return (time.perf_counter() - started) / steps

    for way in ways.values():
        seconds(way)
    found: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds):
        for name in list(ways) if turn % 2 else reversed(ways):
            found[name].append(seconds(ways[name]))
    for name, times in found.items():
        spread = f"{min(times) * 1000:.1f} to {max(times) * 1000:.1f}"
        print(f"  {name:<22} {statistics.median(times) * 1000:7.1f} ms a step   ({spread})", flush=True)
    # Of each round, as what else the machine does changes from one to the next.
    shares = [way / floor for way, floor in zip(found["pipeline"], found["constant batch"], strict=True)]
    return statistics.median(shares) - 1


def main() -> int:
    """Prints both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=400, help="batches of the pipeline in a round")
    parser.add_argument("--steps", type=int, default=60, help="training steps in a round")
    parser.add_argument("--threads", type=int, default=usable_cores())
    given = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(given.threads)
    tf.config.threading.set_inter_op_parallelism_threads(max(2, given.threads))
    source = pictures()
    print(f"input alone, {given.threads} threads, median of {given.rounds} rounds")
    faster = compare_inputs(source, rounds=given.rounds, batches=given.batches, threads=given.threads)
    print(f"  ratio {faster:.1f}, target {FASTER:g} or more: {'met' if faster >= FASTER else 'missed'}")
    print(f"training step, median of {given.rounds} rounds")
    slower = compare_steps(source, rounds=given.rounds, steps=given.steps, threads=given.threads)
    print(f"  input adds {slower:+.1%}, target {SLOWER:.0%} or less: {'met' if slower <= SLOWER else 'missed'}")
    return 0 if faster >= FASTER and slower <= SLOWER else 1


if __name__ == "__main__":
    sys.exit(main())
