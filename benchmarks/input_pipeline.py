"""Training input against the tutorial's ImageDataGenerator and Keras' image_dataset_from_directory.

    python benchmarks/input_pipeline.py [--rounds 5] [--batches 400] [--steps 60] [--threads N] [--only PART]

All ways take turns in one process on the same cores, after a warm-up: batches of 32 pictures of 32 x 32, moved by
up to a tenth and mirrored. The generator has the tutorial's four worker threads or none, whichever is quicker. Each
figure is the median of the rounds. `prepared in the step` is the way of a GPU, computed by the processors.

Two more parts read JPEG files: from a share with 10 ms for each read, which a delay in the reader stands for, and from
the disk, at 224 x 224 pixels. Each of their ways has a new iterator in each round, which ends with it: a queue that is
filled while others run would count as speed. Their ratio is that of the processor time of an image, which other work of
the machine does not change. Exit status: 0 if all targets are met, 1 if not.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["KERAS_BACKEND"] = "tensorflow"

import numpy as np
import tensorflow as tf

from horovodjob_trainer import models
from horovodjob_trainer.data.arrays import Arrays, aligned_copy
from horovodjob_trainer.data.formats.image_folder import ImageFiles
from horovodjob_trainer.data.order import Steps
from horovodjob_trainer.data.reading.augmentation import Augmentation
from horovodjob_trainer.data.reading.example_reader import with_private_threads
from horovodjob_trainer.data.reading.image_decoding import random_crop
from horovodjob_trainer.data.reading.read_ahead import READERS, read_ahead
from horovodjob_trainer.launch import usable_cores
from horovodjob_trainer.run.pipeline import batch_preparation, training_batches

BATCH = 32
STEPS = Steps(batch=BATCH, seed=1)
PICTURES = 10_000
FASTER, SLOWER = 8.0, 0.05  # targets: batches/s against the generator's; time that input adds to a step
READERS_FASTER = 5.0  # target: images/s with all readers against one, on a share with a latency
FILES_FASTER = 1.5  # target: processor time of an image of image_dataset_from_directory against the trainer's
LATENCY_SECONDS = 0.01
FILES, HEIGHT, WIDTH, SIDE = 256, 375, 500, 224  # the size of most images of ImageNet, and that of its networks
CHANGES = Augmentation(shift=0.1, flip=True)


def pictures() -> Arrays:
    """Random pictures of CIFAR-10's shape: what they show costs neither way anything."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (PICTURES, 32, 32, 3), dtype=np.uint8)
    return Arrays(aligned_copy(images), aligned_copy(random.integers(0, 10, PICTURES)), 10)


def pipeline(source: Arrays, threads: int) -> Iterator[Any]:
    """The trainer's input without a GPU: its threads prepare the batches."""
    prepare = batch_preparation(source, batch=BATCH, seed=1, augment=CHANGES)
    yield from training_batches(source, STEPS, threads=threads, prepare=prepare)


def pipeline_of_gpu(source: Arrays, threads: int) -> Iterator[Any]:
    """The trainer's input for a GPU, computed here by the processors: a compiled function prepares each batch."""
    prepare = batch_preparation(source, batch=BATCH, seed=1, augment=CHANGES)
    elements = iter(training_batches(source, STEPS, threads=threads))
    prepared = tf.function(lambda batches: prepare(*next(batches)), autograph=False)
    while True:
        yield prepared(elements)


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
    ways: dict[str, Iterator[Any]] = {
        "pipeline": pipeline(source, threads),
        "prepared in the step": pipeline_of_gpu(source, threads),
        "generator": iter(generator(source)),
    }
    ways["generator, 4 workers"], stop = worked(source, 4)
    counts = {name: max(20, batches // 8) if name.startswith("generator") else batches for name in ways}
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
    prepare = batch_preparation(source, batch=BATCH, seed=1, augment=CHANGES)
    elements = training_batches(source, STEPS, threads=threads, prepare=prepare)
    same = tf.data.Dataset.from_tensors(next(iter(elements))).cache().repeat()
    run = tf.function(lambda batches: model.train_step(next(batches)), autograph=False)
    ways = {"constant batch": (run, iter(same)), "pipeline": (run, iter(elements))}

    def seconds(way: tuple[Any, Iterator[Any]]) -> float:
        step, batches = way
        started = time.perf_counter()
        for _ in range(steps):
            logs = step(batches)
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


class DistantFiles(ImageFiles):
    """Files on a share that takes LATENCY_SECONDS for each read."""

    def content(self, row: int) -> tuple[bytes, int]:
        time.sleep(LATENCY_SECONDS)
        return super().content(row)


def write_files(folder: Path) -> None:
    """Smooth random JPEG images with noise, in two classes, of about 70 kB as photographs of their size have."""
    random = np.random.default_rng(0)
    for number in range(FILES):
        coarse = random.integers(0, 256, (HEIGHT // 16, WIDTH // 16, 3))
        pixels = tf.image.resize(coarse, (HEIGHT, WIDTH), "bicubic") + random.normal(0, 8, (HEIGHT, WIDTH, 3))
        path = folder / str(number % 2) / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(tf.io.encode_jpeg(tf.cast(tf.clip_by_value(pixels, 0, 255), tf.uint8), quality=90).numpy())


def image_files(folder: Path, kind: type[ImageFiles] = ImageFiles) -> ImageFiles:
    files = sorted(str(path) for path in folder.rglob("*.jpg"))
    return kind(files, np.zeros(FILES, np.int64), ("0", "1"), SIDE, str(folder))


def distant(source: ImageFiles, readers: int, threads: int) -> Iterator[Any]:
    """Batches of random crops from a share with a latency."""
    rows = tf.data.Dataset.range(FILES).repeat().batch(BATCH).map(lambda rows: (tf.constant(0, tf.int64), rows))
    batches = read_ahead(rows, source, random_crop(SIDE, 1), batch=BATCH, threads=threads, readers=readers)
    return iter(with_private_threads(batches, threads + READERS))


def compare_readers(folder: Path, *, rounds: int, threads: int) -> float:
    """How many times the images/s of one reader the trainer's number of readers has."""
    source = image_files(folder, DistantFiles)
    names = {f"{readers} reader{'s' if readers > 1 else ''}": readers for readers in (1, READERS)}
    ways = {name: partial(distant, source, readers, threads) for name, readers in names.items()}
    counts = {name: 4 if names[name] == 1 else 20 for name in ways}
    (one, _), (many, _) = measure(ways, rounds=rounds, counts=counts, per=1).values()
    return many / one


def compare_files(folder: Path, *, rounds: int, threads: int) -> dict[str, float]:
    """The processor time of an image in image_dataset_from_directory, by that of the trainer, for its two ways."""
    import keras

    source = image_files(folder)
    of_keras = keras.utils.image_dataset_from_directory(
        folder, image_size=(SIDE, SIDE), batch_size=BATCH, crop_to_aspect_ratio=True, verbose=False
    ).repeat()
    ways: dict[str, Callable[[], Iterator[Any]]] = {
        "random crops": lambda: iter(training_batches(source, STEPS, threads=threads, crop=True)),
        "central squares": lambda: iter(training_batches(source, STEPS, threads=threads)),
        "Keras": lambda: iter(of_keras),
    }
    found = measure(ways, rounds=rounds, counts=dict.fromkeys(ways, 16), per=threads, unit=" a core")
    return {name: found["Keras"][1] / seconds for name, (_, seconds) in found.items() if name != "Keras"}


def measure(
    ways: Mapping[str, Callable[[], Iterator[Any]]],
    *,
    rounds: int,
    counts: dict[str, int],
    per: int,
    unit: str = "",
) -> dict[str, tuple[float, float]]:
    """The medians of the images/s and of the processor seconds of an image, for ways that take turns."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            batches = way()
            rate(batches, 8)
            before = time.process_time()
            speed = rate(batches, counts[name]) * BATCH / per
            found[name].append((speed, (time.process_time() - before) / counts[name] / BATCH))
            del batches
    medians = {}
    for name, values in found.items():
        speeds, seconds = zip(*values, strict=True)
        medians[name] = statistics.median(speeds), statistics.median(seconds)
        spread = f"{min(speeds):7.0f} to {max(speeds):.0f}"
        each = f"{medians[name][1] * 1000:.2f} ms ({min(seconds) * 1000:.2f} to {max(seconds) * 1000:.2f})"
        print(f"  {name:<22} {medians[name][0]:7.0f} images/s{unit}  ({spread}), {each} of a core an image", flush=True)
    return medians


PARTS = ("input", "step", "readers", "files")


def main() -> int:
    """Prints the comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=400, help="batches of the pipeline in a round")
    parser.add_argument("--steps", type=int, default=60, help="training steps in a round")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--only", choices=PARTS, action="append", help="measure only this part")
    given = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(given.threads)
    tf.config.threading.set_inter_op_parallelism_threads(max(2, given.threads))
    source, parts, met = pictures(), given.only or PARTS, []
    rounds, threads = given.rounds, given.threads
    print(f"{threads} threads, medians of {rounds} rounds")
    if "input" in parts:
        print("input alone")
        faster = compare_inputs(source, rounds=rounds, batches=given.batches, threads=threads)
        met.append(report(f"ratio {faster:.1f}", f"{FASTER:g} or more", faster >= FASTER))
    if "step" in parts:
        print("training step")
        slower = compare_steps(source, rounds=rounds, steps=given.steps, threads=threads)
        met.append(report(f"input adds {slower:+.1%}", f"{SLOWER:.0%} or less", slower <= SLOWER))
    with tempfile.TemporaryDirectory() as folder:
        if {"readers", "files"} & set(parts):
            write_files(Path(folder))
        if "readers" in parts:
            print(f"JPEG files on a share with {LATENCY_SECONDS * 1000:g} ms for each read")
            faster = compare_readers(Path(folder), rounds=rounds, threads=threads)
            met.append(report(f"ratio {faster:.1f}", f"{READERS_FASTER:g} or more", faster >= READERS_FASTER))
        if "files" in parts:
            print(f"JPEG files of {WIDTH} x {HEIGHT} at {SIDE} x {SIDE}, against image_dataset_from_directory")
            for name, faster in compare_files(Path(folder), rounds=rounds, threads=threads).items():
                is_met = faster >= FILES_FASTER
                met.append(report(f"ratio of {name} {faster:.2f}", f"{FILES_FASTER:g} or more", is_met))
    return 0 if all(met) else 1


def report(what: str, target: str, is_met: bool) -> bool:
    """Print a result with its target. Returns whether it is met."""
    print(f"  {what}, target {target}: {'met' if is_met else 'missed'}")
    return is_met


if __name__ == "__main__":
    sys.exit(main())
