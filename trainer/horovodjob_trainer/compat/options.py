"""What stands before the script's name on the command line, or in the environment."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from horovodjob_trainer.cli import parsing
from horovodjob_trainer.cli.settings import COUNT, PREFIX, SETTINGS, Parser, Setting
from horovodjob_trainer.data import Request, problem
from horovodjob_trainer.errors import UsageError

PROGRAM = "horovodjob_trainer.compat"
OPTIONS = (
    Setting("dataset", parsing.choice("cifar10", "digits"), "what cifar10.load_data() gives: cifar10, or digits, "
            "handwritten digits in the same shape, which come with the trainer", "cifar10", "NAME"),
    *(SETTINGS[name] for name in ("archive", "archive-url", "archive-sha256", "data-dir", "threads")),
    Setting("max-epochs", parsing.integer(1, COUNT), "train no longer than this, whatever the script says",
            metavar="N"),
    Setting("as-is", parsing.boolean, "run the script with its mistakes: repair nothing", "false"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """A script, its arguments and how it is run."""

    script: str
    arguments: tuple[str, ...]
    data: Request
    threads: int | None
    max_epochs: int | None
    as_is: bool


def options(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """What the command line asks for; a flag goes before its variable.

    Raises UsageError with one sentence; `--help` prints and raises SystemExit.
    """
    flags = vars(_parser().parse_args(arguments))
    script, rest = flags.pop("script"), tuple(flags.pop("arguments"))
    _refuse_unknown(environment)
    values: dict[str, Any] = {}
    for option in OPTIONS:
        flag, variable = flags[option.field], environment.get(option.variable)
        source, text = (f"--{option.name}", flag) if flag is not None else (option.variable, variable)
        text = option.default if text is None else text
        try:
            values[option.field] = None if text is None else option.parse(text)
        except ValueError as error:
            raise UsageError(f"{source}: {error}") from error
    request = Request(
        dataset=values.pop("dataset"),
        data_directory=values.pop("data_dir"),
        **{name: values.pop(name) for name in ("archive", "archive_url", "archive_sha256")},
    )
    if (sentence := problem(request)) is not None:
        raise UsageError(sentence)
    return Options(script=script, arguments=rest, data=request, **values)


def _refuse_unknown(environment: Mapping[str, str]) -> None:
    known = {option.variable for option in OPTIONS}
    for variable in sorted(environment):
        if variable.startswith(PREFIX) and variable not in known:
            raise UsageError(f"the environment variable {variable} is no option here; --help lists all")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog=PROGRAM,
        usage=f"python -m {PROGRAM} [OPTION ...] SCRIPT [ARGUMENT ...]",
        description="Run a training script of 2018 (Keras 2.1, TensorFlow 1, horovod.keras) unchanged, with one "
        "process per rank. Start it with mpirun, horovodrun or as a HorovodJob.",
        epilog="What stands after SCRIPT belongs to the script. An option can be given as an environment variable as "
        f"well: {PREFIX}MAX_EPOCHS for --max-epochs.",
        allow_abbrev=False,
    )
    for option in OPTIONS:
        if option.parse is parsing.boolean:
            parser.add_argument(f"--{option.name}", action="store_const", const="true", help=option.explained)
        else:
            parser.add_argument(f"--{option.name}", metavar=option.metavar, help=option.explained)
    parser.add_argument("script", metavar="SCRIPT", help="the script")
    rest = parser.add_argument("arguments", metavar="ARGUMENT", nargs=argparse.REMAINDER, help="its own arguments")
    rest.required = False  # or argparse's complaint about a missing script would name it as well
    return parser
