"""The configuration of a training run, with all settings parsed and checked against each other."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import click
import yaml

from horovodjob_trainer import models
from horovodjob_trainer.cli import parsing
from horovodjob_trainer.cli.arguments import TRAINING, check_variables, parse, setting_source
from horovodjob_trainer.cli.settings import (
    MOMENTUM_OPTIMIZERS,
    SETTINGS,
    VALIDATION_BATCH_SIZE,
    Setting,
    dataset_defaults,
    model_name,
)
from horovodjob_trainer.data import Request, request_error
from horovodjob_trainer.errors import UsageError
from horovodjob_trainer.import_string import import_function

CHECKPOINT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Configuration:
    """The valid settings of a run. Learning rate and batch size are those of one rank."""

    dataset: str
    data: Path | None
    archive: Path | None
    archive_url: str | None
    archive_sha256: str | None
    data_dir: Path
    image_size: int
    validation_share: float
    cache: str
    augment: bool
    flip: bool
    shuffle: str
    shuffle_window: int | None
    crop: str
    exif: str
    validation_crop: float
    rand_augment: float | None
    mixup: float | None
    cutmix: float | None
    model: str
    init_from: Path | None
    freeze: tuple[str, ...] | None
    normalize: str | None
    precision: str
    dir: Path
    model_name: str
    epochs: int
    max_steps: int | None
    batch_size: int
    validation_batch_size: int
    accumulate: int
    optimizer: str
    learning_rate: float
    momentum: float | None
    weight_decay: float | None
    learning_rate_scaling: str
    schedule: str
    warmup_epochs: float
    warmup_from: float | None
    decay: float
    lr_steps: tuple[float, ...]
    lr_factor: float
    clip_norm: float | None
    label_smoothing: float
    task: str | None
    ema: float | None
    compression: str
    xla: bool
    early_stopping: int | None
    monitor: str
    monitor_mode: str
    checkpoint_steps: int | None
    checkpoint_seconds: float | None
    checkpoint_failure_seconds: float
    grace_seconds: float
    keep_checkpoints: int
    resume: str
    commit_steps: int
    seed: int
    deterministic: bool
    check_sync_every: int | None
    on_nonfinite: str
    skip_damaged: int
    threads: int | None
    log_seconds: float
    mlflow: str | None
    wandb: str | None
    profile_steps: tuple[int, int] | None
    tensorboard: Path | None
    logs: Path
    explicit: frozenset[str] = field(default=frozenset(), compare=False)
    """Names of the settings on the command line and in the environment, and of those that differ from the default."""

    def request(self, threads: int) -> Request:
        """The request for the data set of this run."""
        return Request(
            dataset=self.dataset,
            path=self.data,
            archive=self.archive,
            archive_url=self.archive_url,
            archive_sha256=self.archive_sha256,
            data_directory=self.data_dir,
            image_size=self.image_size,
            validation_share=self.validation_share,
            cache=self.cache,
            seed=self.seed,
            threads=threads,
            shuffle=self.shuffle,
            shuffle_window=self.shuffle_window,
            output_directory=self.dir,
            crop=self.crop,
            validation_crop=self.validation_crop,
            exif=self.exif == "apply",
            skip_damaged=self.skip_damaged,
        )


def load_configuration(arguments: Sequence[str], *, environment: Mapping[str, str] | None = None) -> Configuration:
    """The configuration of a run. Flags override the environment, which overrides --config.

    Raises UsageError with one sentence; `--help` and `--print-config` print and raise SystemExit.
    """
    environment = os.environ if environment is None else environment
    context = parse(TRAINING, arguments, environment)
    check_variables(environment)
    _use_data_function(context)
    given = {name for name in context.params if context.get_parameter_source(name) is not click.ParameterSource.DEFAULT}
    values = {name: value for name, value in context.params.items() if value is not None or name in given}
    configuration = _with_derived_defaults(values, environment)
    _check_consistency(configuration, context)
    configuration = replace(configuration, explicit=_explicit_names(configuration, context))
    if values["print_config"]:
        print(configuration_file(configuration, context))
        raise SystemExit(0)
    return configuration


def configuration_file(configuration: Configuration, context: click.Context) -> str:
    """The configuration as a file for --config; a comment in each line names the source of the value."""
    lines = []
    for name, setting in SETTINGS.items():
        value = getattr(configuration, setting.name)
        if value is None:
            lines.append("tensorboard: none" if name == "tensorboard" else f"# {name}: not set")
            continue
        plain = value if isinstance(value, bool | int | float) else parsing.command_line_text(value)
        lines.append(f"{yaml.safe_dump({name: plain}, width=4096).strip()}  # {setting_source(context, setting)}")
    return "\n".join(lines)


def _use_data_function(context: click.Context) -> None:
    """Make the function in --data the data set."""
    is_given = context.get_parameter_source("dataset") is not click.ParameterSource.DEFAULT
    function = parsing.data_function(context.params["dataset"] if is_given else None, context.params["data"])
    source = context.get_parameter_source("data")
    if function is not None and source is not None:
        context.params |= {"dataset": function, "data": None}
        context.set_parameter_source("dataset", source)


def _with_derived_defaults(values: dict[str, Any], environment: Mapping[str, str]) -> Configuration:
    defaults = dataset_defaults(values["dataset"])
    values.setdefault("epochs", defaults.epochs)
    values.setdefault("model_name", model_name(values["dataset"]))
    values.setdefault("validation_batch_size", min(values["batch_size"], VALIDATION_BATCH_SIZE))
    values.setdefault("learning_rate", defaults.learning_rate)
    values["flip"] = values["augment"] and values.get("flip", defaults.flip)
    if values.get("checkpoint_steps") is None:
        values.setdefault("checkpoint_seconds", CHECKPOINT_SECONDS)
    values.setdefault("logs", Path(environment.get("AZ_BATCHAI_STDOUTERR_DIR") or values["dir"]))
    values.setdefault("tensorboard", values["logs"] / "tensorboard")
    complete: dict[str, Any] = {
        each.name: values.get(each.name) for each in fields(Configuration) if each.name != "explicit"
    }
    return Configuration(**complete)


def _explicit_names(configuration: Configuration, context: click.Context) -> frozenset[str]:
    # A file of --print-config contains every setting, so a default value in a file is no decision of the user.
    sources = {name: context.get_parameter_source(setting.name) for name, setting in SETTINGS.items()}
    return frozenset(
        name
        for name, source in sources.items()
        if source in (click.ParameterSource.COMMANDLINE, click.ParameterSource.ENVIRONMENT)
        or (source is click.ParameterSource.DEFAULT_MAP and _is_changed(SETTINGS[name], configuration))
    )


def _is_changed(setting: Setting, configuration: Configuration) -> bool:
    default = setting.type(setting.default)
    if setting.key == "learning-rate":
        default = dataset_defaults(configuration.dataset).learning_rate
    return bool(getattr(configuration, setting.name) != default)


def _check_consistency(configuration: Configuration, context: click.Context) -> None:
    schedule = configuration.schedule
    _check_applies("lr-steps", schedule == "step", "--schedule step", configuration, context)
    _check_applies("lr-factor", schedule == "step", "--schedule step", configuration, context)
    _check_applies("decay", schedule == "decay", "--schedule decay", configuration, context)
    for name in ("crop", "rand-augment", "mixup", "cutmix"):
        _check_applies(name, configuration.augment, "--augment", configuration, context)
    for name in ("mixup", "cutmix"):
        _check_applies(name, configuration.batch_size > 1, "--batch-size 2 or more", configuration, context)
    if configuration.optimizer == "lars" and configuration.clip_norm is not None:
        raise UsageError("--clip-norm has no effect with --optimizer lars, which divides each gradient by its norm; "
                         "remove it")  # fmt: skip
    is_own = configuration.model in models.MODELS
    _check_applies("normalize", is_own, f"--model {', '.join(models.MODELS)}; use a keras.layers.Normalization in a "
                   "model of your own", configuration, context)  # fmt: skip
    _check_applies("warmup-from", configuration.warmup_epochs > 0, "--warmup-epochs", configuration, context)
    has_momentum = configuration.optimizer in MOMENTUM_OPTIMIZERS
    _check_applies("momentum", has_momentum, "--optimizer sgd, momentum, rmsprop and lars", configuration, context)
    warmup, epochs = configuration.warmup_epochs, configuration.epochs
    if warmup > epochs:
        raise UsageError(f"--warmup-epochs {warmup:g} is more than the {epochs} epochs of this run")
    if error := request_error(configuration.request(threads=1)) or models.model_error(configuration.model):
        raise UsageError(error)
    if configuration.profile_steps is not None:
        _check_profile(configuration, configuration.profile_steps[0])
    if configuration.task is not None:
        import_function(configuration.task)
        for name in ("label-smoothing", "mixup", "cutmix"):
            _check_applies(name, False, "the loss of the trainer, not of --task", configuration, context)


def _check_profile(configuration: Configuration, first: int) -> None:
    if configuration.tensorboard is None:
        raise UsageError("--profile-steps writes to --tensorboard, which is none; set a directory")
    if configuration.max_steps is not None and first > configuration.max_steps:
        raise UsageError(
            f"--profile-steps begins at step {first}, and --max-steps ends the run after step {configuration.max_steps}"
        )


def _check_applies(
    name: str, applies: bool, condition: str, configuration: Configuration, context: click.Context
) -> None:
    if not applies and _is_changed(SETTINGS[name], configuration):
        raise UsageError(f"{setting_source(context, SETTINGS[name])} belongs to {condition}")
