"""What a run was asked to do: settings from flags, environment and file; refuses the impossible before a start."""

import argparse
import difflib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from horovodjob_trainer import models
from horovodjob_trainer.cli import parsing
from horovodjob_trainer.cli.settings import GROUPS, PREFIX, SETTINGS, Parser, Setting, defaults_of
from horovodjob_trainer.data import Request, problem
from horovodjob_trainer.errors import UsageError


@dataclass(frozen=True, slots=True)
class Configuration:
    """A run of the trainer. Every value is possible; learning rate and batch are those of one rank."""

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
    model: str
    precision: str
    dir: Path
    model_name: str
    epochs: int
    max_steps: int | None
    batch_size: int
    accumulate: int
    optimizer: str
    learning_rate: float
    scale_learning_rate: bool
    schedule: str
    warmup_epochs: float
    decay: float
    lr_steps: tuple[float, ...]
    lr_factor: float
    clip_norm: float | None
    label_smoothing: float
    compression: str
    xla: bool
    early_stopping: int | None
    monitor: str
    checkpoint_steps: int | None
    keep_checkpoints: int
    resume: str
    commit_steps: int
    seed: int
    deterministic: bool
    check_sync_every: int | None
    on_nonfinite: str
    threads: int | None
    log_seconds: float
    tensorboard: Path | None
    logs: Path

    def request(self, threads: int) -> Request:
        """The data set that this run asks for."""
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
        )


@dataclass(frozen=True, slots=True)
class _Given:
    """A setting's text and who gave it, for the sentence that refuses it."""

    text: str
    source: str


def configuration(
    arguments: Sequence[str], *, world_size: int, environment: Mapping[str, str] | None = None
) -> Configuration:
    """The run that flags, environment and --config ask for, in this order of precedence, for `world_size` ranks.

    Raises UsageError with one sentence; `--help` and `--print-config` print and raise SystemExit.
    """
    environment = os.environ if environment is None else environment
    flags = vars(_parser().parse_args(arguments))
    given = dict(_defaults_given())
    file = flags.pop("config") or environment.get(f"{PREFIX}CONFIG")
    if file is not None:
        given |= _from_file(file)
    given |= _from_environment(environment)
    shows = flags.pop("print_config")
    given |= {name: _Given(text, f"--{name}") for name, text in _flags_given(flags)}
    values = {SETTINGS[name].field: _parsed(SETTINGS[name], value) for name, value in given.items()}
    run = _completed(values, world_size, environment)
    _refuse_contradictions(run, given)
    if shows:
        print(printed(run, given))
        raise SystemExit(0)
    return run


def printed(run: Configuration, given: Mapping[str, _Given]) -> str:
    """The configuration as a file for --config, each line with where its value comes from."""
    lines = []
    for name, setting in SETTINGS.items():
        value = getattr(run, setting.field)
        source = given[name].source if name in given else "default"
        if value is None:
            lines.append("tensorboard: none" if name == "tensorboard" else f"# {name}: not set")
            continue
        plain = value if isinstance(value, bool | int | float) else parsing.text_of(value)
        lines.append(f"{yaml.safe_dump({name: plain}, width=4096).strip()}  # {source}")
    return "\n".join(lines)


def _defaults_given() -> Iterator[tuple[str, _Given]]:
    for name, setting in SETTINGS.items():
        if setting.default is not None:
            yield name, _Given(setting.default, "default")


def _flags_given(flags: Mapping[str, str | bool | None]) -> Iterator[tuple[str, str]]:
    for field, value in flags.items():
        if value is not None:
            yield field.replace("_", "-"), parsing.text_of(value)


def _from_environment(environment: Mapping[str, str]) -> dict[str, _Given]:
    known = {setting.variable: name for name, setting in SETTINGS.items()}
    found = {}
    for variable, text in environment.items():
        if variable.startswith(PREFIX) and variable != f"{PREFIX}CONFIG":
            if variable not in known:
                raise UsageError(f"the environment variable {variable} is no setting{_meant(variable, known)}")
            found[known[variable]] = _Given(text, f"environment variable {variable}")
    return found


def _from_file(file: str) -> dict[str, _Given]:
    try:
        content = yaml.safe_load(Path(file).read_bytes())
    except OSError as error:
        raise UsageError(f"--config: cannot read {file}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"--config: {file} is no YAML: {' '.join(str(error).split())}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UsageError(f"--config: {file} holds no settings: write one 'name: value' in a line")
    found = {}
    for key, value in content.items():
        name = str(key).replace("_", "-")
        if name not in SETTINGS:
            raise UsageError(f"{file}: '{key}' is no setting{_meant(name, SETTINGS)}")
        if isinstance(value, dict) or (isinstance(value, list) and name != "lr-steps"):
            raise UsageError(f"{file}: {name} has to be one value")
        if value is not None:
            found[name] = _Given(parsing.text_of(value), f"{file}: {name}")
    return found


def _meant(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else "; --help lists all of them"


def _parsed(setting: Setting, given: _Given) -> Any:
    try:
        return setting.parse(given.text)
    except ValueError as error:
        raise UsageError(f"{given.source}: {error}") from error


def _completed(values: dict[str, Any], world_size: int, environment: Mapping[str, str]) -> Configuration:
    defaults = defaults_of(values["dataset"])
    values.setdefault("epochs", math.ceil(defaults.epochs / world_size))
    values.setdefault("learning_rate", defaults.learning_rate)
    values["flip"] = values["augment"] and values.get("flip", defaults.flip)
    values.setdefault("logs", Path(environment.get("AZ_BATCHAI_STDOUTERR_DIR") or values["dir"]))
    values.setdefault("tensorboard", values["logs"] / "tensorboard")
    complete: dict[str, Any] = {field.name: values.get(field.name) for field in fields(Configuration)}
    return Configuration(**complete)


def _refuse_contradictions(run: Configuration, given: Mapping[str, _Given]) -> None:
    def belongs(name: str, holds: bool, to: str) -> None:
        default = SETTINGS[name].default
        changed = name in given and (
            default is None or getattr(run, SETTINGS[name].field) != SETTINGS[name].parse(default)
        )
        if changed and not holds:
            raise UsageError(f"{given[name].source} belongs to {to}")

    belongs("lr-steps", run.schedule == "step", "--schedule step")
    belongs("lr-factor", run.schedule == "step", "--schedule step")
    belongs("decay", run.schedule == "decay", "--schedule decay")
    if run.warmup_epochs > run.epochs:
        raise UsageError(f"--warmup-epochs {run.warmup_epochs:g} is more than the {run.epochs} epochs of this run")
    if sentence := problem(run.request(threads=1)) or models.problem(run.model):
        raise UsageError(sentence)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="horovodjob_trainer",
        usage="python -m horovodjob_trainer [--SETTING VALUE ...] | predict ... | evaluate ...",
        description="Train a Keras model with one process per rank. Start it with mpirun, horovodrun or as a "
        "HorovodJob; alone it trains with one rank.",
        epilog="A setting comes from its flag, else from its environment variable (TRAINER_BATCH_SIZE for "
        "--batch-size), else from the file of --config, else it has its default. "
        "An epoch has samples / batch size steps on every rank, so that N ranks see the whole data set N times in "
        "it; the default number of epochs is therefore divided by the number of ranks, and the learning rate is "
        "multiplied by it. Rank 0 writes checkpoint-EPOCH.h5 after each epoch and, at the end, the trained model "
        "below saved_models as .h5 and .keras. "
        "Exit codes: 0 trained, 1 failed, 2 a setting is wrong, 3 the loss is not a number, 4 the ranks' weights "
        "differ, 143 ended by SIGTERM.",
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="YAML file of settings, 'name: value' in each line")
    parser.add_argument("--print-config", action="store_true", help="show every setting and its source, then end")
    for title, settings in GROUPS.items():
        group = parser.add_argument_group(title)
        for setting in settings:
            _add(group, setting)
    return parser


def _add(group: Any, setting: Setting) -> None:
    flags = [f"--{setting.name}"] if setting.name != "dir" else ["-d", "--dir"]
    if setting.parse is parsing.boolean:
        group.add_argument(*flags, action=argparse.BooleanOptionalAction, default=None, help=setting.explained)
    else:
        group.add_argument(*flags, metavar=setting.metavar, help=setting.explained)
