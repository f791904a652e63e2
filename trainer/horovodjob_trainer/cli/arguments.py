"""The command line of a training run, with the environment and the file of settings that it overrides."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from horovodjob_trainer.cli import parsing
from horovodjob_trainer.cli.settings import GROUPS, PREFIX, SETTINGS, Setting
from horovodjob_trainer.errors import UsageError

LISTS = ("lr-steps", "freeze")
CONTEXT_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 120}


def parse(command: click.Command, arguments: Sequence[str], environment: Mapping[str, str]) -> click.Context:
    """The context of the command with all values. Flags override the environment, which overrides --config.

    Raises UsageError with one sentence; `--help` prints and raises SystemExit.
    """
    try:
        return command.make_context(command.name, list(arguments), obj=environment)
    except click.exceptions.Exit as end:
        raise SystemExit(end.exit_code) from None
    except click.MissingParameter as error:
        raise UsageError(
            f"the following arguments are required: {error.param.opts[0] if error.param else ''}"
        ) from error
    except click.BadParameter as error:
        raise UsageError(f"{_where(error)}: {error.message}") from error
    except click.UsageError as error:
        raise UsageError(error.format_message()) from error


def setting_source(context: click.Context, setting: Setting) -> str:
    """Where the value of the setting is from, which error messages name."""
    match context.get_parameter_source(setting.name):
        case click.ParameterSource.COMMANDLINE:
            return f"--{setting.key}"
        case click.ParameterSource.ENVIRONMENT:
            return f"environment variable {setting.variable}"
        case click.ParameterSource.DEFAULT_MAP:
            return f"{context.params['config']}: {setting.key}"
    return "default"


def check_variables(environment: Mapping[str, str]) -> None:
    """Raise UsageError for an environment variable that begins with TRAINER_ and is not a setting."""
    variables = {f"{PREFIX}CONFIG", *(setting.variable for setting in SETTINGS.values())}
    for variable in environment:
        if variable.startswith(PREFIX) and variable not in variables:
            raise UsageError(f"the environment variable {variable} is not a setting{_suggestion(variable, variables)}")


def _read_file(context: click.Context, _: click.Parameter, file: Path | None) -> Path | None:
    """Make the settings in the YAML file the defaults of the others. Raises UsageError."""
    if file is not None:
        context.default_map = _file_texts(file)
    return file


def _file_texts(file: Path) -> dict[str, str]:
    try:
        content = yaml.safe_load(file.read_bytes())
    except OSError as error:
        raise UsageError(f"--config: cannot read {file}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"--config: {file} is not valid YAML: {' '.join(str(error).split())}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UsageError(f"--config: {file} contains no settings: write one 'name: value' per line")
    texts = {}
    for key, value in content.items():
        name = str(key).replace("_", "-")
        if name not in SETTINGS:
            raise UsageError(f"{file}: '{key}' is not a setting{_suggestion(name, SETTINGS)}")
        if isinstance(value, dict) or (isinstance(value, list) and name not in LISTS):
            raise UsageError(f"{file}: {name} must be a single value")
        if value is not None:
            texts[SETTINGS[name].name] = parsing.command_line_text(value)
    return texts


def _where(error: click.BadParameter) -> str:
    if isinstance(error.param, Setting) and error.ctx is not None:
        return setting_source(error.ctx, error.param)
    return f"argument {error.param.opts[0]}" if error.param else "command line"


def _suggestion(name: str, names: Collection[str]) -> str:
    similar = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {similar[0]}?" if similar else "; --help lists all settings"


class _TrainingCommand(click.Command):
    """A command with a section of its help for each group of settings."""

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, " ".join(self.collect_usage_pieces(ctx)), prefix="usage: ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        others = [option for option in self.get_params(ctx) if option not in SETTINGS.values()]
        for title, options in {"options": others, **GROUPS}.items():
            with formatter.section(title):
                formatter.write_dl([record for option in options if (record := option.get_help_record(ctx))])


TRAINING = _TrainingCommand(
    "python -m horovodjob_trainer",
    params=[
        Setting("config", parsing.path, "YAML file of settings, one 'name: value' per line", metavar="FILE",
                is_eager=True, callback=_read_file),
        click.Option(["--print-config"], is_flag=True, help="print every setting with its source, then exit"),
        *SETTINGS.values(),
    ],
    options_metavar="[--SETTING VALUE ...] | predict ... | evaluate ... | export ...",
    help="Train a Keras model with one process per rank. Start it with mpirun, horovodrun or as a HorovodJob. Without "
    "a launcher it trains with one rank.",
    epilog="The value of a setting is that of its flag, else that of its environment variable (TRAINER_BATCH_SIZE for "
    "--batch-size), else that in the file of --config, else its default. An epoch is one pass of all ranks together "
    "over the training data: samples / (batch size * ranks) steps. Rank 0 writes checkpoint-EPOCH.h5 after each epoch. "
    "At the end it writes the trained model below saved_models as .h5 and .keras. Exit codes: 0 trained, 1 failed, 2 "
    "invalid setting, 3 the loss is not a number, 4 the weights of the ranks differ, 143 ended by SIGTERM.",
    context_settings=CONTEXT_SETTINGS,
)  # fmt: skip
