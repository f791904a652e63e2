"""What a run was asked to do. Reads the command line and refuses the impossible before anything starts."""

import argparse
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NoReturn

from horovodjob_trainer.errors import UsageError

CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
CIFAR10_SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
ANY_SHA256 = "any"


class DatasetName(Enum):
    CIFAR10 = "cifar10"
    DIGITS = "digits"


@dataclass(frozen=True, slots=True)
class Defaults:
    """Settings that suit a data set. Epochs are those of one rank; more ranks need fewer."""

    epochs: int
    learning_rate: float
    flip: bool


DEFAULTS = {
    DatasetName.CIFAR10: Defaults(epochs=100, learning_rate=1e-4, flip=True),
    # A mirrored digit is another picture.
    DatasetName.DIGITS: Defaults(epochs=12, learning_rate=5e-4, flip=False),
}


@dataclass(frozen=True, slots=True)
class Configuration:
    """A run of the trainer. Every value is possible; rates and batch are those of one rank."""

    dataset: DatasetName
    directory: Path
    data_directory: Path
    archive: Path | None
    archive_url: str
    archive_sha256: str
    epochs: int
    batch_size: int
    learning_rate: float
    warmup_epochs: int
    decay: float
    seed: int
    augment: bool
    flip: bool
    threads: int | None
    log_seconds: float


def configuration(arguments: Sequence[str], *, world_size: int) -> Configuration:
    """The run that the command line asks for, in a job of `world_size` ranks.

    Raises UsageError with one sentence; `--help` prints and raises SystemExit.
    """
    given = _parser().parse_args(arguments)
    dataset = DatasetName(given.dataset)
    defaults = DEFAULTS[dataset]
    epochs = given.epochs or math.ceil(defaults.epochs / world_size)
    if given.warmup_epochs > epochs:
        raise UsageError(f"--warmup-epochs {given.warmup_epochs} is more than the {epochs} epochs of this run")
    if dataset is not DatasetName.CIFAR10:
        for option in ("archive", "archive_url", "archive_sha256"):
            if getattr(given, option) is not None:
                raise UsageError(f"--{option.replace('_', '-')} belongs to --dataset cifar10")
    if given.archive is not None and given.archive_url is not None:
        raise UsageError("--archive and --archive-url name two sources; give one of them")
    if given.archive_sha256 == ANY_SHA256 and given.archive is None:
        raise UsageError(f"--archive-sha256 {ANY_SHA256} needs --archive: a download is always checked")
    return Configuration(
        dataset=dataset,
        directory=given.dir,
        data_directory=given.data_dir,
        archive=given.archive,
        archive_url=given.archive_url or CIFAR10_URL,
        archive_sha256=given.archive_sha256 or CIFAR10_SHA256,
        epochs=epochs,
        batch_size=given.batch_size,
        learning_rate=defaults.learning_rate if given.learning_rate is None else given.learning_rate,
        warmup_epochs=given.warmup_epochs,
        decay=given.decay,
        seed=given.seed,
        augment=given.augment,
        flip=given.augment and defaults.flip,
        threads=given.threads,
        log_seconds=given.log_seconds,
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _parser() -> argparse.ArgumentParser:
    cifar, digits = DEFAULTS[DatasetName.CIFAR10], DEFAULTS[DatasetName.DIGITS]
    parser = _Parser(
        prog="horovodjob_trainer",
        description="Train a small convolutional network on images with one process per rank. Start it with "
        "mpirun or as a HorovodJob; alone it trains with one rank.",
        epilog="An epoch has samples / batch size steps on every rank, so that N ranks see the whole data set N "
        "times in it; the default number of epochs is therefore divided by the number of ranks, and the learning "
        "rate is multiplied by it. Rank 0 writes checkpoint-EPOCH.h5 after each epoch and, at the end, "
        "saved_models/keras_cifar10_trained_model.h5 and .keras below --dir. With HOROVODJOB_ATTEMPT above 1 "
        "the run goes on from the newest readable checkpoint of the attempt before. "
        "Exit codes: 0 trained, 1 failed, 2 the command line is wrong, 143 ended by SIGTERM.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--dataset",
        choices=[name.value for name in DatasetName],
        default=DatasetName.CIFAR10.value,
        help="cifar10, or scikit-learn's handwritten digits, which need no network (default: %(default)s)",
    )
    add(
        "-d",
        "--dir",
        type=_path,
        default=Path("."),
        metavar="DIR",
        help="directory for the model and the checkpoints (default: the current directory)",
    )
    add("--epochs", type=_integer(1, 1_000_000), metavar="N",
        help=f"default: {cifar.epochs} / ranks for cifar10, {digits.epochs} / ranks for digits")  # fmt: skip
    add("--batch-size", type=_integer(1, 1_000_000), default=32, metavar="N",
        help="images per step and rank (default: %(default)s)")  # fmt: skip
    add("--learning-rate", type=_real(0, above=True), metavar="X",
        help="of one rank; the job's is this times the number of ranks "
        f"(default: {cifar.learning_rate:g} for cifar10, {digits.learning_rate:g} for digits)")  # fmt: skip
    add("--warmup-epochs", type=_integer(0, 1_000_000), default=0, metavar="N",
        help="raise the learning rate from that of one rank to the job's in so many epochs (default: 0)")  # fmt: skip
    add("--decay", type=_real(0), default=1e-6, metavar="X",
        help="the learning rate of step n is divided by 1 + X * n (default: %(default)s)")  # fmt: skip
    add("--seed", type=_integer(0, 2**31 - 1), default=1, metavar="N",
        help="decides first weights, order of the images and augmentation (default: %(default)s)")  # fmt: skip
    add("--augment", action=argparse.BooleanOptionalAction, default=True,
        help="shift training images by up to a tenth and, for cifar10, mirror half of them (default: on)")  # fmt: skip
    add("--archive", type=_path, metavar="FILE",
        help="read cifar10 from this copy of cifar-10-python.tar.gz; nothing is downloaded")  # fmt: skip
    add("--archive-url", type=_url, metavar="URL",
        help=f"download cifar10 from here, once per node (default: {CIFAR10_URL})")  # fmt: skip
    add("--archive-sha256", type=_sha256, metavar="HEX",
        help="checksum that the archive must have: the official one unless given here; 'any' accepts a "
        "different --archive of the same layout unchecked, with any number of images")  # fmt: skip
    add("--data-dir", type=_path, default=_cache_directory(), metavar="DIR",
        help="where downloads are kept (default: %(default)s)")  # fmt: skip
    add("--threads", type=_integer(1, 4096), metavar="N",
        help="threads of this rank (default: the usable cores divided by the ranks of the node)")  # fmt: skip
    add("--log-seconds", type=_real(0, above=True), default=5.0, metavar="S",
        help="least time between two progress lines in an epoch (default: %(default)s)")  # fmt: skip
    return parser


def _cache_directory() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache")
    return Path(home) / "horovodjob"


def _path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text)


def _integer(least: int, most: int) -> Callable[[str], int]:
    def integer(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from {least} to {most}")
        return int(text)

    return integer


def _real(least: float, *, above: bool = False) -> Callable[[str], float]:
    def real(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < least or (above and value == least):
            raise argparse.ArgumentTypeError(f"'{text}' is not a number {'above' if above else 'from'} {least:g}")
        return value

    return real


def _url(text: str) -> str:
    if not re.fullmatch(r"https?://[^/\s]+/\S*", text):
        raise argparse.ArgumentTypeError(f"'{text}' is not an http or https address of a file")
    return text


def _sha256(text: str) -> str:
    if text != ANY_SHA256 and not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise argparse.ArgumentTypeError(f"'{text}' is neither 64 hexadecimal digits nor '{ANY_SHA256}'")
    return text.lower()
