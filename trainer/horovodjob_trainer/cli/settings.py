"""Every setting of the trainer: its name, how its text is read, its default, its help."""

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from horovodjob_trainer import data, models
from horovodjob_trainer.cli import parsing
from horovodjob_trainer.errors import UsageError

PREFIX = "TRAINER_"
COUNT = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: `name` is its flag, its key in a file and, in capitals after TRAINER_, its variable."""

    name: str
    parse: Callable[[str], Any]
    help: str
    default: str | None = None
    metavar: str | None = None

    @property
    def field(self) -> str:
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        return PREFIX + self.field.upper()

    @property
    def explained(self) -> str:
        """The help with the default, as argparse wants it."""
        default = "" if self.default is None else f" (default: {self.default})"
        return (self.help + default).replace("%", "%%")


class Parser(argparse.ArgumentParser):
    """Raises a complaint as UsageError, for one rank to say."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


@dataclass(frozen=True, slots=True)
class Defaults:
    """Settings that suit a data set. Epochs are those of one rank; more ranks need fewer."""

    epochs: int
    learning_rate: float
    flip: bool


TUTORIAL = Defaults(epochs=100, learning_rate=1e-4, flip=True)
# A mirrored digit is another picture.
DIGITS = Defaults(epochs=12, learning_rate=5e-4, flip=False)


def defaults_of(dataset: str) -> Defaults:
    """Epochs and learning rate that suit the data set."""
    return DIGITS if dataset == "digits" else TUTORIAL


GROUPS: dict[str, tuple[Setting, ...]] = {
    "data": (
        Setting("dataset", parsing.choice_or_function(*data.NAMES), "what to train on: a data set, a kind of files "
                "below --data, or your own function as package.module:function", "cifar10", "NAME"),
        Setting("data", parsing.path, "directory or file of --dataset images, tfrecord and npz", metavar="PATH"),
        Setting("archive", parsing.path, "read cifar10 or cifar100 from this copy of the official archive; nothing "
                "is downloaded", metavar="FILE"),
        Setting("archive-url", parsing.url, "download the archive from here, once per node, instead of the official "
                "address", metavar="URL"),
        Setting("archive-sha256", parsing.sha256, "checksum that the archive must have: the official one unless "
                "given here; 'any' accepts a different --archive of the same layout unchecked, with any number of "
                "images", metavar="HEX"),
        Setting("data-dir", parsing.path, "where downloads are kept",
                str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "horovodjob"), "DIR"),
        Setting("image-size", parsing.integer(8, 4096), "side to which --dataset images and tfrecord are resized",
                "64", "N"),
        Setting("validation-share", parsing.real(0, 0.9, above=True), "share of the examples that is kept for the "
                "test where the data have no test part", "0.1", "X"),
        Setting("cache", parsing.choice(*data.CACHES), "keep decoded images in memory: always, never, or "
                "where they fit", "auto", "WHEN"),
        Setting("augment", parsing.boolean, "shift training images by up to a tenth and mirror half of them", "true"),
        Setting("flip", parsing.boolean, "whether augmentation mirrors (default: yes; for digits no)"),
    ),
    "model": (
        Setting("model", parsing.choice_or_function(*models.MODELS), "the network: the tutorial's, a ResNet, or your "
                "own function as package.module:function", "tutorial", "NAME"),
        Setting("precision", parsing.choice("float32", "mixed_float16", "mixed_bfloat16"), "Keras' dtype policy",
                "float32", "POLICY"),
        Setting("dir", parsing.path, "directory for the model and the checkpoints", ".", "DIR"),
        Setting("model-name", parsing.word, "name of the trained model below saved_models",
                "keras_cifar10_trained_model", "NAME"),
    ),
    "training": (
        Setting("epochs", parsing.integer(1, COUNT), f"default: {TUTORIAL.epochs} / ranks, for digits "
                f"{DIGITS.epochs} / ranks", metavar="N"),
        Setting("max-steps", parsing.integer(1, COUNT), "end after so many steps, whatever the epochs", metavar="N"),
        Setting("batch-size", parsing.integer(1, COUNT), "examples per step and rank", "32", "N"),
        Setting("accumulate", parsing.integer(1, 100_000), "average the gradients of so many steps before weights "
                "change", "1", "N"),
        Setting("optimizer", parsing.choice("rmsprop", "sgd", "momentum", "adam", "adamw", "lamb"), "momentum is sgd "
                "with Nesterov momentum 0.9", "rmsprop", "NAME"),
        Setting("learning-rate", parsing.real(0, above=True), "of one rank (default: "
                f"{TUTORIAL.learning_rate:g}, for digits {DIGITS.learning_rate:g})", metavar="X"),
        Setting("scale-learning-rate", parsing.boolean, "multiply the learning rate by the number of ranks", "true"),
        Setting("schedule", parsing.choice("decay", "constant", "cosine", "step"), "how the learning rate falls: "
                "divided by 1 + DECAY * steps, not at all, along half a cosine to 0, or at --lr-steps", "decay",
                "NAME"),
        Setting("warmup-epochs", parsing.real(0, COUNT), "raise the learning rate from that of one rank to the job's "
                "in so many epochs", "0", "N"),
        Setting("decay", parsing.real(0), "of --schedule decay", "1e-6", "X"),
        Setting("lr-steps", parsing.rising_numbers, "epochs after which --schedule step multiplies the learning rate",
                "30,60,80", "N,N"),
        Setting("lr-factor", parsing.real(0, 1, above=True), "by this", "0.1", "X"),
        Setting("clip-norm", parsing.real(0, above=True), "limit of the averaged gradient's global norm",
                metavar="X"),
        Setting("label-smoothing", parsing.real(0, 0.9), "share of a label given to the other classes", "0", "X"),
        Setting("compression", parsing.choice("none", "fp16", "bf16"), "type of the gradients while they travel",
                "none", "NAME"),
        Setting("xla", parsing.boolean, "let XLA compile what lies between the exchanges of gradients", "false"),
        Setting("early-stopping", parsing.integer(1, COUNT), "stop after so many epochs without a better --monitor",
                metavar="N"),
        Setting("monitor", parsing.word, "the metric that decides which checkpoint is best", "val_loss", "NAME"),
    ),
    "checkpoints": (
        Setting("checkpoint-steps", parsing.integer(1, COUNT), "write one every so many steps, besides that of each "
                "epoch", metavar="N"),
        Setting("keep-checkpoints", parsing.integer(1, COUNT), "keep the newest N and the best", "10", "N"),
        Setting("resume", parsing.choice("auto", "never"), "go on with the unfinished run in --dir if it has the "
                "same settings", "auto", "WHEN"),
        Setting("commit-steps", parsing.integer(1, COUNT), "under elastic Horovod: steps that a lost rank may cost",
                "25", "N"),
    ),
    "checks": (
        Setting("seed", parsing.integer(0, 2**31 - 1), "decides first weights, order of the examples and "
                "augmentation", "1", "N"),
        Setting("deterministic", parsing.boolean, "use only operations that give the same bits each time; slower on "
                "a GPU", "false"),
        Setting("check-sync-every", parsing.integer(1, COUNT), "compare the weights of all ranks every so many steps "
                "and name those that differ", metavar="N"),
        Setting("on-nonfinite", parsing.choice("stop", "continue"), "what to do when the loss is not a number",
                "stop", "WHAT"),
    ),
    "process": (
        Setting("threads", parsing.integer(1, 4096), "threads of this rank (default: the usable cores divided by the "
                "ranks of the node)", metavar="N"),
        Setting("log-seconds", parsing.real(0, above=True), "least time between two progress lines in an epoch", "5",
                "S"),
        Setting("logs", parsing.path, "directory of progress.jsonl (default: that of the job's log files, else "
                "--dir)", metavar="DIR"),
        Setting("tensorboard", parsing.path_or_none, "directory of TensorBoard's event files, or none (default: "
                "tensorboard below --logs)", metavar="DIR"),
    ),
}  # fmt: skip
SETTINGS = {setting.name: setting for group in GROUPS.values() for setting in group}
