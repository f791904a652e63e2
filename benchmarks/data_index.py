"""Start of a training run on many files, without and with the index, and the speed of the two orders of records.

    python benchmarks/data_index.py DIRECTORY [--images N] [--records N] [--large-records N] [--delay-ms N]

Writes its data below DIRECTORY and deletes it at the end: a folder of images, which are hard links; 1,024 files of
small records; 16 files of records of 110 KB. Each start is a new process with one rank. Its time is that of loading the
data set and reading the first batch, without the import of TensorFlow. Directories are in the cache of the kernel.
For the speed of an order, the records are dropped from the cache. With --delay-ms, strace delays each request to the
file system (open, stat, list, read) by this time, as a file server does, but for the requests that its client caches.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["KERAS_BACKEND"] = "tensorflow"

CLASSES, SHARDS, LARGE_SHARDS, LARGE_BYTES = 1000, 1024, 16, 110_000
BATCH, SIZE, ROUNDS, THREADS = 32, 32, 3, 2
REQUESTS = "openat,newfstatat,getdents64,pread64"


def picture() -> bytes:
    """A small image file."""
    import numpy as np
    import tensorflow as tf

    return bytes(tf.io.encode_png(np.zeros((SIZE, SIZE, 3), np.uint8)).numpy())


def write_images(folder: Path, count: int) -> None:
    """A folder per class, in which all files are hard links to one image."""
    content = picture()
    for label in range(CLASSES):
        class_folder = folder / "train" / f"n{label:08}"
        class_folder.mkdir(parents=True)
        first = class_folder / f"n{label:08}_0.png"
        first.write_bytes(content)
        for number in range(1, count // CLASSES):
            os.link(first, class_folder / f"n{label:08}_{number}.png")


def write_records(folder: Path, count: int, shards: int, padding: int = 0) -> None:
    """Files of equal records with one image each."""
    import tensorflow as tf

    def feature(**value: Any) -> Any:
        return tf.train.Feature(**value)

    features = {
        "image": feature(bytes_list=tf.train.BytesList(value=[picture()])),
        "label": feature(int64_list=tf.train.Int64List(value=[1])),
        "padding": feature(bytes_list=tf.train.BytesList(value=[bytes(padding)])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    folder.mkdir(parents=True)
    with tf.io.TFRecordWriter(str(folder / "one")) as file:
        file.write(example)
    record = (folder / "one").read_bytes()
    (folder / "one").unlink()
    for shard in range(shards):
        with (folder / f"train-{shard:05}-of-{shards:05}.tfrecord").open("wb") as file:
            for _ in range(count // shards):
                file.write(record)


def request(kind: str, path: Path, **changes: Any) -> Any:
    """The request for a data set in these files, which are not cached in memory."""
    from horovodjob_trainer import data

    return data.Request(dataset=kind, path=path, image_size=SIZE, cache="none", **changes)


def start(kind: str, path: Path) -> dict[str, Any]:
    """The seconds of a start, and what it logs."""
    from horovodjob_trainer import data
    from horovodjob_trainer.run.pipeline import training_batches

    log: list[str] = []
    began = time.perf_counter()
    dataset = data.load_dataset(request(kind, path), data.Ranks(log=log.append))
    loaded = time.perf_counter()
    next(iter(training_batches(dataset.train, data.Steps(batch=BATCH, seed=1, window=dataset.window))))
    return {"load": loaded - began, "batch": time.perf_counter() - loaded, "log": log}


def speed(shuffle: str, path: Path) -> dict[str, Any]:
    """The megabytes of records per second that the input pipeline of one rank reads in this order."""
    from horovodjob_trainer import data
    from horovodjob_trainer.run.pipeline import training_batches

    dataset = data.load_dataset(request("tfrecord", path, shuffle=shuffle))
    for file in path.glob("train-*"):
        with file.open("rb+") as opened:
            os.fsync(opened.fileno())  # only pages on the disk can be dropped
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    steps = dataset.train.samples // BATCH
    one_pass = data.Steps(batch=BATCH, seed=1, window=dataset.window, count=steps)
    batches = training_batches(dataset.train, one_pass, threads=THREADS)
    began = time.perf_counter()
    for _ in batches:
        pass
    return {"speed": steps * BATCH * LARGE_BYTES / (time.perf_counter() - began) / 1e6}


def measured(delay_ms: float, *arguments: str) -> dict[str, Any]:
    """What a new process finds, in which each request to the file system is delayed."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, __file__, "--part", *arguments], stdin=pipe, stdout=pipe, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        tracer = None
        if delay_ms:
            delay = f"{REQUESTS}:delay_enter={round(delay_ms * 1000)}"
            trace = ["-e", f"trace={REQUESTS}", "-e", f"inject={delay}", "-o", os.devnull]
            tracer = subprocess.Popen(["strace", "-f", "-p", str(child.pid), *trace], stderr=pipe, text=True)
            assert tracer.stderr is not None
            tracer.stderr.readline()  # attached
        child.stdin.write("\n")
        child.stdin.flush()
        found: dict[str, Any] = json.loads(child.stdout.readline())
    if tracer is not None:
        tracer.wait()
    return found


def print_starts(kind: str, path: Path, title: str, delay_ms: float) -> None:
    """Print a start without an index and three with it."""
    print(title)
    for name in ("first start", *["with the index"] * ROUNDS):
        found = measured(delay_ms, kind, str(path))
        parts = f"data set {found['load']:.1f}, first batch {found['batch']:.1f}"
        print(f"  {name:<16}{found['load'] + found['batch']:6.1f} s ({parts})  {found['log'][0]}", flush=True)


def print_speeds(path: Path, delay_ms: float) -> None:
    """Print how fast records are read in both orders."""
    found: dict[str, list[float]] = {"exact": [], "window": []}
    for _ in range(ROUNDS):
        for shuffle, speeds in found.items():
            speeds.append(measured(delay_ms, shuffle, str(path))["speed"])
    for shuffle, speeds in found.items():
        spread = f"{min(speeds):.0f} to {max(speeds):.0f}"
        print(f"  --shuffle {shuffle:<8}{statistics.median(speeds):6.0f} MB/s ({spread})", flush=True)


def main() -> None:
    """Print the times of all starts and the speed of both orders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--records", type=int, default=1_280_000)
    parser.add_argument("--large-records", type=int, default=20_000)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    parser.add_argument("--part", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        import tensorflow as tf

        part, path = given.part[0], Path(given.part[1])
        tf.constant(0)
        print("ready", flush=True)
        input()
        print(json.dumps(speed(part, path) if part in ("exact", "window") else start(part, path)), flush=True)
        return
    root = given.directory / "data-index"
    root.mkdir(parents=True)
    try:
        if given.images:
            write_images(root / "images", given.images)
            print_starts("images", root / "images", f"{given.images:,} images in {CLASSES:,} folders", given.delay_ms)
        if given.records:
            write_records(root / "records", given.records, SHARDS)
            title = f"{given.records:,} records in {SHARDS:,} files, {{}} labels.txt"
            print_starts("tfrecord", root / "records", title.format("without"), given.delay_ms)
            next((root / "records").glob(".horovodjob-*")).unlink()
            (root / "records" / "labels.txt").write_text("\n".join(map(str, range(CLASSES))))
            print_starts("tfrecord", root / "records", title.format("with"), given.delay_ms)
        if given.large_records:
            write_records(root / "large", given.large_records, LARGE_SHARDS, LARGE_BYTES)
            print(f"{given.large_records:,} records of {LARGE_BYTES // 1000} KB, one rank, {THREADS} threads")
            print_speeds(root / "large", given.delay_ms)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
