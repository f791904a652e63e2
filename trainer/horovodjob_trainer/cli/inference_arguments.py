"""The command lines of `predict` and `evaluate`."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from horovodjob_trainer import data
from horovodjob_trainer.cli import parsing
from horovodjob_trainer.cli.settings import SETTINGS, Parser
from horovodjob_trainer.errors import UsageError
from horovodjob_trainer.run.predictions import FORMATS

DATA_SETTINGS = ("dataset", "data", "archive", "archive-url", "archive-sha256", "data-dir", "validation-share",
                 "image-size", "seed", "threads")  # fmt: skip


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The command and its flags. Raises UsageError with one sentence; `--help` prints and raises SystemExit."""
    parser = _parser(arguments[0])
    given = parser.parse_args(arguments[1:])
    given.command = arguments[0]
    if given.command == "predict" and given.dataset is None and given.data is None:
        raise UsageError("predict needs --data with pictures, or --dataset")
    if given.command == "evaluate" and given.dataset is None:
        given.dataset = SETTINGS["dataset"].default
    if given.dataset is not None and (sentence := data.problem(request(given, 1, threads=1))) is not None:
        raise UsageError(sentence)
    return given


def request(given: argparse.Namespace, size: int, *, threads: int) -> data.Request:
    """The data that the flags ask for, pictures of files in this size."""
    return data.Request(
        dataset=given.dataset,
        path=given.data,
        archive=given.archive,
        archive_url=given.archive_url,
        archive_sha256=given.archive_sha256,
        data_directory=given.data_dir,
        image_size=size,
        validation_share=given.validation_share,
        cache="none",  # each example is read once
        seed=given.seed,
        threads=threads,
    )


def _parser(command: str) -> argparse.ArgumentParser:
    predicts = command == "predict"
    parser = Parser(
        prog=f"python -m horovodjob_trainer {command}",
        description="Write what a trained model says of pictures or of the test part of a data set."
        if predicts
        else "Print loss and metrics of a trained model over the test part of a data set.",
        epilog="Several ranks under mpirun share the work. Exit codes: 0 done, 1 failed, 2 a flag is wrong.",
        allow_abbrev=False,
    )
    parser.add_argument("--model", type=_read(parsing.path), required=True, metavar="FILE",
                        help="trained model: .keras, .h5, or a checkpoint")  # fmt: skip
    for name in DATA_SETTINGS:
        setting = SETTINGS[name] if name != "dataset" else replace(SETTINGS[name], default=None)
        default = None if setting.default is None else setting.parse(setting.default)
        about = setting.explained
        if predicts and name == "data":
            about += "; without --dataset a picture, a folder of pictures, or the x of an .npz file"
        parser.add_argument(f"--{name}", type=_read(setting.parse), default=default, metavar="X", help=about)
    parser.add_argument("--batch-size", type=_read(parsing.integer(1, 1_000_000)), default=128, metavar="N",
                        help="examples at a time and rank (default: %(default)s)")  # fmt: skip
    if predicts:
        parser.add_argument(
            "--output", type=_read(parsing.path), metavar="FILE", help="where to write (default: stdout)"
        )
        parser.add_argument("--format", choices=FORMATS, help="default: by the ending of --output, else csv")
    else:
        parser.add_argument("--json", action="store_true", help="print one line of JSON")
    return parser


def _read(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return read
