"""The settings of the trainer: name, parser, help text and default of each."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from horovodjob_trainer import data, models
from horovodjob_trainer.cli import parsing

PREFIX = "TRAINER_"
ALL_BUT_LAST = "all-but-last"
COUNT = 1_000_000_000
SCALINGS = ("auto", "linear", "sqrt", "none")
MOMENTUM_OPTIMIZERS = ("sgd", "momentum", "rmsprop", "lars")
VALIDATION_BATCH_SIZE = 250


class Setting(click.Option):
    """A setting. `key` is its flag, its key in a file and, in capitals after TRAINER_, its environment variable."""

    def __init__(
        self,
        key: str,
        parse: Callable[[str], Any] | click.ParamType[Any],
        help: str,  # noqa: A002
        default: str | None = None,
        metavar: str | None = None,
        **attributes: Any,
    ) -> None:
        self.key, self.variable = key, PREFIX + key.replace("-", "_").upper()
        is_boolean = parse is parsing.boolean
        super().__init__(
            [f"--{key}/--no-{key}" if is_boolean else f"--{key}", *(["-d"] if key == "dir" else [])],
            type=parse,
            help=help,
            default=default == "true" if is_boolean and default else default,
            metavar=None if isinstance(parse, click.Choice) else metavar,  # the help lists the choices
            show_default=True,
            **attributes,
        )

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """The text of the variable in the environment, which is the object of the context. click skips empty texts."""
        text: str | None = ctx.obj.get(self.variable)
        return text


@dataclass(frozen=True, slots=True)
class Defaults:
    """Defaults for a data set. The learning rate is that of one rank."""

    epochs: int
    learning_rate: float
    flip: bool


TUTORIAL = Defaults(epochs=100, learning_rate=1e-4, flip=True)
# A mirrored digit is a different image.
DIGITS = Defaults(epochs=12, learning_rate=5e-4, flip=False)


def dataset_defaults(dataset: str) -> Defaults:
    """Defaults for the data set with this name."""
    return DIGITS if dataset == "digits" else TUTORIAL


def model_name(dataset: str) -> str:
    """Default name of the model for a data set, which for CIFAR-10 is that of the tutorial."""
    return f"keras_{dataset.rpartition(':')[2]}_trained_model"


GROUPS: dict[str, tuple[Setting, ...]] = {
    "data": (
        Setting("dataset", parsing.choice_or_function(*data.NAMES), "the training data: a data set, a format of "
                "files below --data, or your own function as package.module:function", "cifar10", "NAME"),
        Setting("data", parsing.path, "directory or file for --dataset images, tfrecord and npz; without --dataset, "
                "your own function as package.module:function", metavar="PATH"),
        Setting("archive", parsing.path, "read cifar10 or cifar100 from this copy of the official archive and "
                "download nothing", metavar="FILE"),
        Setting("archive-url", parsing.url, "download the archive from this URL instead of the official one, once per "
                "node", metavar="URL"),
        Setting("archive-sha256", parsing.sha256, "required checksum of the archive (default: that of the "
                "official archive); 'any' disables the check and accepts any --archive of the same layout, with any "
                "number of images", metavar="HEX"),
        Setting("data-dir", parsing.path, "directory for downloads",
                str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "horovodjob"), "DIR"),
        Setting("image-size", parsing.integer(8, 4096), "height and width of the images of --dataset images and "
                "tfrecord", "64", "N"),
        Setting("validation-share", parsing.number(0, 0.9, exclusive=True), "share of the examples that is used for "
                "testing if the data set has no test part", "0.1", "X"),
        Setting("cache", parsing.choice(*data.CACHES), "whether to keep decoded images in memory; auto keeps "
                "them if they fit", "auto", "WHEN"),
        Setting("augment", parsing.boolean, "shift training images by up to a tenth of their size and mirror half "
                "of them", "true"),
        Setting("flip", parsing.boolean, "mirror half of the training images (default: true; false for digits)"),
        Setting("shuffle", parsing.choice(*data.SHUFFLES), "order of --dataset tfrecord: exact is a random permutation "
                "of all examples; window reads the files sequentially and shuffles within a window; auto is exact for "
                "up to 1 GB of records", "auto", "HOW"),
        Setting("shuffle-window", parsing.integer(1, COUNT), "examples in the window of each rank (default: as many as "
                "256 MB of records contain, 512 to 16384)", metavar="N"),
        Setting("crop", parsing.choice(*data.CROPS), "part of a training image of --dataset images and tfrecord: its "
                "central square, or a random resized crop in each epoch instead of a shift", "center", "PART"),
        Setting("exif", parsing.choice("apply", "ignore"), "whether images from files are turned to the orientation in "
                "their EXIF data", "apply", "WHAT"),
        Setting("validation-crop", parsing.number(0, 1, exclusive=True), "side of the central square of a test image "
                "of --dataset images and tfrecord, as a share of the shorter side of the image", "1", "X"),
        Setting("rand-augment", parsing.number(0, 1, exclusive=True), "change each training image with two random "
                "operations of this strength", metavar="X"),
        Setting("mixup", parsing.number(0, 1, exclusive=True), "mix the training images of a batch, and their labels: "
                "the parameter of the beta distribution of the shares", metavar="X"),
        Setting("cutmix", parsing.number(0, 1, exclusive=True), "replace a rectangle of each training image by that of "
                "another one of its batch, and mix their labels: the parameter of the beta distribution of its area; "
                "with --mixup, half of the batches get either", metavar="X"),
    ),
    "model": (
        Setting("model", parsing.choice_or_function(*models.MODELS), "the network: that of the tutorial, a ResNet, "
                "or your own function as package.module:function", "tutorial", "NAME"),
        Setting("init-from", parsing.path, "initial weights: the .keras, .h5 or .weights.h5 file of a model whose last "
                "layer can have another shape", metavar="FILE"),
        Setting("freeze", parsing.patterns, f"layers that are not trained: names, with wildcards, or {ALL_BUT_LAST}",
                metavar="NAME,NAME"),
        Setting("normalize", parsing.normalization, "values that a first layer of the network subtracts from the "
                "channels of an image and by which it divides them: imagenet, or MEAN,...:DEVIATION,... for values "
                "from 0 to 1", metavar="VALUES"),
        Setting("precision", parsing.choice("auto", "float32", "mixed_float16", "mixed_bfloat16"), "Keras' dtype "
                "policy; auto is mixed_bfloat16 or mixed_float16 for the networks of the trainer on GPUs that "
                "compute fast with it, else float32", "auto", "POLICY"),
        Setting("dir", parsing.path, "directory for the model and the checkpoints", ".", "DIR"),
        Setting("model-name", parsing.word, "name of the trained model below saved_models (default: "
                f"{model_name('DATASET')}, in which DATASET is --dataset or the name of its function)",
                metavar="NAME"),
    ),
    "training": (
        Setting("epochs", parsing.integer(1, COUNT), "number of passes of all ranks together over the training data "
                f"(default: {TUTORIAL.epochs}, for digits {DIGITS.epochs})", metavar="N"),
        Setting("max-steps", parsing.integer(1, COUNT), "end after this number of steps, even within an epoch",
                metavar="N"),
        Setting("batch-size", parsing.integer(1, COUNT), "examples per step and rank", "32", "N"),
        Setting("validation-batch-size", parsing.integer(1, COUNT), "examples per batch and rank in the validation "
                f"(default: --batch-size, at most {VALIDATION_BATCH_SIZE})", metavar="N"),
        Setting("accumulate", parsing.integer(1, 100_000), "number of steps with averaged gradients per update of "
                "the weights", "1", "N"),
        Setting("optimizer", parsing.choice("rmsprop", "sgd", "momentum", "adam", "adamw", "lamb", "lars"), "momentum "
                "is sgd with Nesterov momentum 0.9; lars has momentum 0.9", "rmsprop", "NAME"),
        Setting("learning-rate", parsing.number(0, exclusive=True), "learning rate of one rank (default: "
                f"{TUTORIAL.learning_rate:g}, for digits {DIGITS.learning_rate:g})", metavar="X"),
        Setting("momentum", parsing.number(0, 0.9999), "momentum of --optimizer sgd, momentum, rmsprop and lars "
                "(default: that of the optimizer)", metavar="X"),
        Setting("weight-decay", parsing.number(0), "decoupled weight decay, multiplied by the learning rate; biases "
                "and normalization layers are excluded (default: 0, for adamw 0.004)", metavar="X"),
        Setting("learning-rate-scaling", parsing.choice(*SCALINGS), "factor of the learning rate: the number of ranks, "
                "its square root, or 1; auto is linear for sgd, momentum and lars, and sqrt for the other optimizers",
                "auto", "HOW"),
        Setting("schedule", parsing.choice("decay", "constant", "cosine", "step"), "how the learning rate decreases: "
                "divided by 1 + DECAY * steps, never, along half a cosine to 0, or at --lr-steps", "decay",
                "NAME"),
        Setting("warmup-epochs", parsing.number(0, COUNT), "number of epochs in which the learning rate rises "
                "to that of the job", "0", "N"),
        Setting("warmup-from", parsing.number(0), "learning rate with which --warmup-epochs begins (default: that of "
                "one rank or, if it is not scaled, 0)", metavar="X"),
        Setting("decay", parsing.number(0), "decay per step for --schedule decay", "1e-6", "X"),
        Setting("lr-steps", parsing.increasing_numbers, "epochs after which --schedule step multiplies the learning "
                "rate", "30,60,80", "N,N"),
        Setting("lr-factor", parsing.number(0, 1, exclusive=True), "factor for --schedule step", "0.1", "X"),
        Setting("clip-norm", parsing.number(0, exclusive=True), "limit of the global norm of the averaged gradient",
                metavar="X"),
        Setting("label-smoothing", parsing.number(0, 0.9), "share of a label that the other classes receive", "0", "X"),
        Setting("ema", parsing.number(0, 0.999999, exclusive=True), "validate and save exponential moving averages of "
                "the weights: the share of the average that remains in a step", metavar="X"),
        Setting("compression", parsing.choice("none", "fp16", "bf16"), "data type of the gradients in the "
                "allreduce", "none", "NAME"),
        Setting("xla", parsing.boolean, "let XLA compile the operations between the gradient allreduces", "false"),
        Setting("task", parsing.function, "your own function that returns loss and metrics (default: those for classes "
                "or for a regression, or those of a compiled model)", metavar=parsing.FUNCTION_METAVAR),
        Setting("early-stopping", parsing.integer(1, COUNT), "stop after this number of epochs without an "
                "improvement of --monitor",
                metavar="N"),
        Setting("monitor", parsing.word, "the metric that selects the best checkpoint", "val_loss", "NAME"),
        Setting("monitor-mode", parsing.choice("auto", "min", "max"), "whether the lowest or the highest value of "
                "--monitor is the best; auto uses the direction of the metric in Keras", "auto", "MODE"),
    ),
    "checkpoints": (
        Setting("checkpoint-steps", parsing.integer(1, COUNT), "write a checkpoint every N steps in addition to that "
                "of each epoch", metavar="N"),
        Setting("checkpoint-seconds", parsing.number(0, exclusive=True), "write a checkpoint when the last one is this "
                "old (default: 600 without --checkpoint-steps)", metavar="S"),
        Setting("checkpoint-failure-seconds", parsing.number(0, exclusive=True), "end the run when no write of a "
                "checkpoint has succeeded for so long; until then, the trainer repeats it", "1800", "S"),
        Setting("grace-seconds", parsing.number(0, exclusive=True), "time for the last checkpoint after SIGTERM; "
                "choose it shorter than the terminationGracePeriodSeconds of the pod", "25", "S"),
        Setting("keep-checkpoints", parsing.integer(1, COUNT), "number of newest checkpoints to keep in addition to "
                "the best", "10", "N"),
        Setting("resume", parsing.choice("auto", "continue", "never"), "auto resumes the unfinished run in --dir if it "
                "has the same settings; continue resumes it also with changed data or another learning rate; never "
                "starts a new run and keeps the checkpoints of the unfinished one", "auto", "WHEN"),
        Setting("commit-steps", parsing.integer(1, COUNT), "with elastic Horovod: number of steps between two commits, "
                "which the loss of a rank can undo",
                "25", "N"),
    ),
    "checks": (
        Setting("seed", parsing.integer(0, 2**31 - 1), "seed of the initial weights, the order of the examples and the "
                "augmentation", "1", "N"),
        Setting("deterministic", parsing.boolean, "use only operations with bitwise reproducible results; slower "
                "on a GPU", "false"),
        Setting("check-sync-every", parsing.integer(1, COUNT), "compare the weights of all ranks every N steps and "
                "report ranks that differ", metavar="N"),
        Setting("on-nonfinite", parsing.choice("stop", "continue"), "reaction to a loss that is not a number",
                "stop", "WHAT"),
        Setting("skip-damaged", parsing.integer(0, COUNT), "number of damaged examples of --dataset images and "
                "tfrecord on all ranks together that are replaced by others of their batches", "0", "N"),
    ),
    "process": (
        Setting("threads", parsing.integer(1, 4096), "threads of each rank (default: the usable cores divided by the "
                "number of ranks on the node)", metavar="N"),
        Setting("log-seconds", parsing.number(0, exclusive=True), "minimum time between two progress lines in an "
                "epoch", "5", "S"),
        Setting("logs", parsing.path, "directory of progress.jsonl (default: that of the log files of the job, "
                "else --dir)", metavar="DIR"),
        Setting("mlflow", parsing.target, "also report to this experiment of MLflow; its server and credentials are in "
                "variables such as MLFLOW_TRACKING_URI", metavar="EXPERIMENT"),
        Setting("wandb", parsing.target, "also report to this project of Weights & Biases; its key is in WANDB_API_KEY",
                metavar="PROJECT"),
        Setting("profile-steps", parsing.step_range, "write a profile of these steps of rank 0 to --tensorboard, such "
                "as 100:110", metavar="FIRST:LAST"),
        Setting("tensorboard", parsing.path_or_none, "directory of the TensorBoard event files, or none (default: "
                "tensorboard below --logs)", metavar="DIR"),
    ),
}  # fmt: skip
SETTINGS = {setting.key: setting for group in GROUPS.values() for setting in group}
