"""The command lines of `predict` and `evaluate`."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from horovodjob_trainer import data
from horovodjob_trainer.cli import parsing
from horovodjob_trainer.cli.settings import SETTINGS, ArgumentParser
from horovodjob_trainer.errors import UsageError

PREDICTION_FORMATS = ("csv", "jsonl")
DATA_SETTINGS = ("dataset", "data", "archive", "archive-url", "archive-sha256", "data-dir", "validation-share",
                 "image-size", "seed", "threads")  # fmt: skip


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The command and its flags. Raises UsageError with one sentence; `--help` prints and raises SystemExit."""
    parser = _parser(arguments[0])
    options = parser.parse_args(arguments[1:])
    options.command = arguments[0]
    if options.command == "predict" and options.dataset is None and options.data is None:
        raise UsageError("predict needs --data with images, or --dataset")
    if options.command == "evaluate" and options.dataset is None:
        options.dataset = SETTINGS["dataset"].default
    if options.dataset is not None and (error := data.request_error(build_request(options, 1, threads=1))) is not None:
        raise UsageError(error)
    return options


def build_request(options: argparse.Namespace, size: int, *, threads: int) -> data.Request:
    """The data that the flags select, with images of this size."""
    return data.Request(
        dataset=options.dataset,
        path=options.data,
        archive=options.archive,
        archive_url=options.archive_url,
        archive_sha256=options.archive_sha256,
        data_directory=options.data_dir,
        image_size=size,
        validation_share=options.validation_share,
        cache="none",  # each example is read once
        seed=options.seed,
        threads=threads,
    )


def _parser(command: str) -> argparse.ArgumentParser:
    predicts = command == "predict"
    parser = ArgumentParser(
        prog=f"python -m horovodjob_trainer {command}",
        description="Write the predictions of a trained model for images or for the test part of a data set."
        if predicts
        else "Print loss and metrics of a trained model over the test part of a data set.",
        epilog="With mpirun, the ranks share the work. Exit codes: 0 done, 1 failed, 2 invalid flag.",
        allow_abbrev=False,
    )
    parser.add_argument("--model", type=_argument_type(parsing.path), required=True, metavar="FILE",
                        help="trained model: .keras, .h5, or a checkpoint")  # fmt: skip
    for name in DATA_SETTINGS:
        setting = SETTINGS[name] if name != "dataset" else replace(SETTINGS[name], default=None)
        default = None if setting.default is None else setting.parse(setting.default)
        text = setting.help_with_default
        if predicts and name == "data":
            text += "; without --dataset an image, a directory of images, or the array x of an .npz file"
        parser.add_argument(f"--{name}", type=_argument_type(setting.parse), default=default, metavar="X", help=text)
    parser.add_argument("--batch-size", type=_argument_type(parsing.integer(1, 1_000_000)), default=128, metavar="N",
                        help="examples per batch and rank (default: %(default)s)")  # fmt: skip
    if predicts:
        parser.add_argument(
            "--output", type=_argument_type(parsing.path), metavar="FILE", help="output file (default: stdout)"
        )
        parser.add_argument("--format", choices=PREDICTION_FORMATS, help="default: by the suffix of --output, else csv")
    else:
        parser.add_argument("--json", action="store_true", help="print one line of JSON")
    return parser


def _argument_type(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return convert
