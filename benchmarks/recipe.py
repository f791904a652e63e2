"""Test accuracy on the digits after a training without and with the recipe of today, for several seeds.

    nice .venv/bin/python benchmarks/recipe.py [--seeds N] [--epochs N] [--images N]

Each training is a process of one rank with one thread. The trainings of a seed have the same initial weights and the
same order of the examples. All variants have the optimizer, the batch size and the number of epochs in common.
"""

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

COMMON = ("--dataset", "npz", "--no-flip", "--optimizer", "momentum", "--learning-rate", "0.02", "--weight-decay",
          "1e-3", "--threads", "1", "--tensorboard", "none", "--deterministic")  # fmt: skip
CLASSIC = ("--schedule", "step", "--lr-factor", "0.1")  # the rate falls after 1/3, 2/3 and 8/9 of the epochs
SCHEDULE = ("--schedule", "cosine", "--warmup-epochs", "1", "--label-smoothing", "0.1", "--ema", "0.99",
            "--normalize", "0.5:0.5")  # fmt: skip
AUGMENTATION = ("--rand-augment", "0.3", "--mixup", "0.2", "--cutmix", "1.0")
VARIANTS = {
    "without": CLASSIC,
    "with, except for RandAugment, mixup and CutMix": SCHEDULE,
    "with": (*SCHEDULE, *AUGMENTATION),
}


def write_digits(path: Path, images: int) -> None:
    """Write the first images of the training part of the digits, and all of the test part."""
    from horovodjob_trainer import data

    digits: Any = data.digits()
    train, test = digits.train.select(np.arange(images)), digits.test
    np.savez(path, x_train=train.examples, y_train=train.labels, x_test=test.examples, y_test=test.labels)


def train(data: Path, flags: Sequence[str], seed: int, epochs: int) -> tuple[float, float]:
    """The test accuracy in percent of the model after the last epoch, and the processor seconds of the training."""
    if "step" in flags:
        flags = (*flags, "--lr-steps", ",".join(f"{epochs * share:.6g}" for share in (1 / 3, 2 / 3, 8 / 9)))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [sys.executable, "-m", "horovodjob_trainer", "--data", str(data), *COMMON, *flags, "--seed", str(seed),
             "--epochs", str(epochs), "--dir", directory],
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    accuracy = re.search(r"^Test accuracy: ([\d.]+)$", done.stdout, re.MULTILINE)
    if accuracy is None:
        sys.exit(f"the training failed with exit code {done.returncode}:\n{done.stderr}")
    return 100 * float(accuracy[1]), after.ru_utime - before.ru_utime


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description="Test accuracy without and with the recipe of today.")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds (default: 5)")
    parser.add_argument("--epochs", type=int, default=40, help="epochs of each training (default: 40)")
    parser.add_argument(
        "--images", type=int, default=200, help="number of training images, at most 1437 (default: 200)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory) / "digits.npz"
        write_digits(data, options.images)
        compare(data, seeds=options.seeds, epochs=options.epochs)


def compare(data: Path, *, seeds: int, epochs: int) -> None:
    """Train all variants with all seeds and print the table."""
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in VARIANTS}
    for seed in range(1, seeds + 1):
        for name, flags in VARIANTS.items():
            results[name].append(train(data, flags, seed, epochs))
            print(f"seed {seed}, {name}: {results[name][-1][0]:.2f} %", file=sys.stderr, flush=True)
    print("| recipe | test accuracy by seed | mean | standard deviation | processor seconds |")
    print("| --- | --- | --- | --- | --- |")
    for name, runs in results.items():
        accuracies = [accuracy for accuracy, _ in runs]
        spread = f"{statistics.stdev(accuracies):.2f}" if len(runs) > 1 else "-"
        each, seconds = ", ".join(f"{accuracy:.1f}" for accuracy in accuracies), sum(second for _, second in runs)
        print(f"| {name} | {each} | {statistics.mean(accuracies):.2f} % | {spread} | {seconds:.0f} |")


if __name__ == "__main__":
    main()
