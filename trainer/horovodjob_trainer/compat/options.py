"""The options before the name of the script on the command line, or in the environment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click

from horovodjob_trainer.cli import parsing
from horovodjob_trainer.cli.arguments import CONTEXT_SETTINGS, parse
from horovodjob_trainer.cli.settings import COUNT, PREFIX, SETTINGS, Setting
from horovodjob_trainer.data import Request, request_error
from horovodjob_trainer.errors import UsageError

PROGRAM = "horovodjob_trainer.compat"
OPTIONS = (
    Setting("dataset", parsing.choice("cifar10", "digits"), "the data set that cifar10.load_data() returns: cifar10, "
            "or digits, handwritten digits of the same shape that are part of the trainer", "cifar10", "NAME"),
    *(SETTINGS[name] for name in ("archive", "archive-url", "archive-sha256", "data-dir", "threads")),
    Setting("max-epochs", parsing.integer(1, COUNT), "maximum number of epochs, even if the script sets more",
            metavar="N"),
    Setting("as-is", parsing.boolean, "run the script without the patches of its mistakes", "false"),
)  # fmt: skip
COMMAND = click.Command(
    f"python -m {PROGRAM}",
    params=[
        *OPTIONS,
        click.Argument(["SCRIPT"]),
        click.Argument(["ARGUMENTS"], nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENT ...]"),
    ],
    help="Run a training script of 2018 (Keras 2.1, TensorFlow 1, horovod.keras) unchanged, with one process per rank. "
    "Start it with mpirun, horovodrun or as a HorovodJob.",
    epilog="Arguments after SCRIPT belong to the script. Each option has an environment variable: "
    f"{PREFIX}MAX_EPOCHS for --max-epochs.",
    context_settings={**CONTEXT_SETTINGS, "allow_interspersed_args": False},
)


@dataclass(frozen=True, slots=True)
class Options:
    """A script, its arguments and the options of its run."""

    script: str
    arguments: tuple[str, ...]
    data: Request
    threads: int | None
    max_epochs: int | None
    as_is: bool


def parse_options(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """The options on the command line. A flag overrides its environment variable.

    Raises UsageError with one sentence; `--help` prints and raises SystemExit.
    """
    values = parse(COMMAND, arguments, environment).params
    _check_environment(environment)
    request = Request(
        dataset=values.pop("dataset"),
        data_directory=values.pop("data_dir"),
        **{name: values.pop(name) for name in ("archive", "archive_url", "archive_sha256")},
    )
    if (problem := request_error(request)) is not None:
        raise UsageError(problem)
    return Options(data=request, **values)


def _check_environment(environment: Mapping[str, str]) -> None:
    known = {option.variable for option in OPTIONS}
    for variable in sorted(environment):
        if variable.startswith(PREFIX) and variable not in known:
            raise UsageError(f"the environment variable {variable} is not an option; --help lists all options")
