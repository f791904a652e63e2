"""Start of a training run on many files, without and with the index, and the speed of the two orders of records.

    python benchmarks/data_index.py DIRECTORY [--images 1000000] [--records 1280000] [--large-records 20000]

Writes its data below DIRECTORY and deletes it at the end: a folder of images, which are hard links; 1,024 files of
small records; 16 files of records of 110 KB. Each start is a new process with one rank. Its time is that of loading the
data set and reading the first batch, without the import of TensorFlow. The kernel has the directories in its cache, and
no file server is involved, from which the first start waits for each directory or record. For the speed of an order,
the pages of the records are dropped from the cache before each round.
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
    import tensorflow as tf

    from horovodjob_trainer import data
    from horovodjob_trainer.run.pipeline import training_batches

    tf.constant(0)
    log: list[str] = []
    began = time.perf_counter()
    dataset = data.load_dataset(request(kind, path), data.Ranks(log=log.append))
    loaded = time.perf_counter()
    next(iter(training_batches(dataset.train, batch=BATCH, rank=0, size=1, seed=1, window=dataset.window)))
    return {"load": loaded - began, "batch": time.perf_counter() - loaded, "log": log}


def print_starts(kind: str, path: Path, title: str) -> None:
    """Print a start without an index and three with it."""
    print(title)
    for name in ("first start", *["with the index"] * ROUNDS):
        command = [sys.executable, __file__, "--start", kind, str(path)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        seconds = (
            f"{found['load'] + found['batch']:6.1f} s (data set {found['load']:.1f}, first batch {found['batch']:.1f})"
        )
        print(f"  {name:<16}{seconds}  {found['log'][0]}", flush=True)
    (index,) = path.glob(".horovodjob-*")
    print(f"  the index has {index.stat().st_size / 1e6:.1f} MB", flush=True)


def print_speeds(path: Path, batches: int) -> None:
    """Print how fast records are read in both orders."""
    import numpy as np
    import tensorflow as tf

    from horovodjob_trainer import data
    from horovodjob_trainer.data.example_reader import map_dataset
    from horovodjob_trainer.data.sampling import rows_at_positions
    from horovodjob_trainer.data.window import WindowOrder

    found: dict[str, list[float]] = {"exact": [], "window": []}
    for turn in range(2 * ROUNDS):
        shuffle = ("exact", "window")[turn % 2]
        dataset = data.load_dataset(request("tfrecord", path, shuffle=shuffle))
        source: Any = dataset.train
        for file in source.files:
            with open(file, "rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        positions = np.arange(batches * BATCH) + turn * batches * BATCH
        step, reads = BATCH, THREADS
        if dataset.window is None:
            rows = rows_at_positions(positions, samples=source.samples, seed=1)
        else:
            order = WindowOrder(dataset.window, seed=1, batch=BATCH, size=1, position=0, streams=1)
            rows, step, reads = order.rows(positions), order.window_batches * BATCH, 1
        rows = rows[: len(rows) // step * step].reshape(-1, step)
        contents = iter(map_dataset(tf.data.Dataset.from_tensor_slices(rows), source.contents, reads).prefetch(1))
        began = time.perf_counter()
        for _ in contents:
            pass
        found[shuffle].append(rows.size * LARGE_BYTES / (time.perf_counter() - began) / 1e6)
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
    parser.add_argument("--start", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.start:
        print(json.dumps(start(given.start[0], Path(given.start[1]))))
        return
    root = given.directory / "data-index"
    root.mkdir(parents=True)
    try:
        write_images(root / "images", given.images)
        print_starts("images", root / "images", f"{given.images:,} images in {CLASSES:,} folders")
        write_records(root / "records", given.records, SHARDS)
        title = f"{given.records:,} records in {SHARDS:,} files, {{}} labels.txt"
        print_starts("tfrecord", root / "records", title.format("without"))
        next((root / "records").glob(".horovodjob-*")).unlink()
        (root / "records" / "labels.txt").write_text("\n".join(map(str, range(CLASSES))))
        print_starts("tfrecord", root / "records", title.format("with"))
        write_records(root / "large", given.large_records, LARGE_SHARDS, LARGE_BYTES)
        print(
            f"{given.large_records:,} records of {LARGE_BYTES // 1000} KB, read on one rank, median of {ROUNDS} rounds"
        )
        print_speeds(root / "large", given.large_records // BATCH // 4)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
