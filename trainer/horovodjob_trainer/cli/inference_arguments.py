"""The command lines of `predict`, `evaluate` and `export`."""

from collections.abc import Sequence
from types import SimpleNamespace

import click

from horovodjob_trainer import data
from horovodjob_trainer.cli import parsing
from horovodjob_trainer.cli.arguments import CONTEXT_SETTINGS, parse
from horovodjob_trainer.cli.settings import SETTINGS
from horovodjob_trainer.errors import UsageError

DATA_SETTINGS = ("dataset", "data", "archive", "archive-url", "archive-sha256", "data-dir", "validation-share",
                 "image-size", "exif", "validation-crop", "seed", "threads")  # fmt: skip


def parse_arguments(arguments: Sequence[str]) -> SimpleNamespace:
    """The command and its flags. Raises UsageError with one sentence; `--help` prints and raises SystemExit."""
    command, *flags = arguments
    options = SimpleNamespace(command=command, **parse(_COMMANDS[command], flags, {}).params)
    if command == "export":
        return options
    if (function := parsing.data_function(options.dataset, options.data)) is not None:
        options.dataset, options.data = function, None
    if command == "predict" and options.dataset is None and options.data is None:
        raise UsageError("predict needs --data with images, or --dataset")
    if command == "predict" and options.output is not None and options.output.suffix == ".csv":
        raise UsageError(f"--output {options.output}: predictions are lines of JSON; use a name that ends in .jsonl")
    if command == "evaluate" and options.dataset is None:
        options.dataset = SETTINGS["dataset"].default
    if options.dataset is not None and (error := data.request_error(build_request(options, 1, threads=1))) is not None:
        raise UsageError(error)
    return options


def build_request(options: SimpleNamespace, size: int, *, threads: int) -> data.Request:
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
        validation_crop=options.validation_crop,
        exif=options.exif == "apply",
        seed=options.seed,
        threads=threads,
    )


def _data_option(name: str) -> click.Option:
    """The setting without its environment variable. The data set has no default, because images need none."""
    setting = SETTINGS[name]
    default = None if name == "dataset" else setting.default
    return click.Option([f"--{name}"], type=setting.type, default=default, metavar=setting.metavar, help=setting.help)


_MODEL = click.Option(
    ["--model"], type=parsing.path, required=True, metavar="FILE", help="trained model: .keras, .h5, or a checkpoint"
)
_DATA = [
    *map(_data_option, DATA_SETTINGS),
    click.Option(["--batch-size"], type=parsing.integer(1, 1_000_000), default="128", metavar="N", help="examples per "
                 "batch and rank"),
]  # fmt: skip
_TEXTS = {
    "predict": "Write the predictions of a trained model for images or for the test part of a data set, as lines of "
    "JSON. Without --dataset, --data is an image, a directory of images, or an .npz file with the array x.",
    "evaluate": "Print loss and metrics of a trained model over the test part of a data set.",
    "export": "Export a trained model for a model server.",
}
_OPTIONS = {
    "predict": [
        *_DATA,
        click.Option(["--output"], type=parsing.path, metavar="FILE", help="output file (default: stdout)"),
    ],
    "evaluate": [*_DATA, _data_option("task"), click.Option(["--json"], is_flag=True, help="print one line of JSON")],
    "export": [
        _data_option("threads"),
        click.Option(["--output"], type=parsing.path, required=True, metavar="PATH", help="a new directory for "
                     "saved-model, a file for onnx"),
        click.Option(["--format"], type=parsing.choice("saved-model", "onnx"), help="default: onnx if --output ends "
                     "in .onnx, else saved-model"),
    ],
}  # fmt: skip
_COMMANDS = {
    name: click.Command(
        f"python -m horovodjob_trainer {name}",
        params=[_MODEL, *options],
        help=_TEXTS[name],
        epilog="With mpirun, the ranks share the work. Exit codes: 0 done, 1 failed, 2 invalid flag.",
        context_settings={**CONTEXT_SETTINGS, "show_default": True},
    )
    for name, options in _OPTIONS.items()
}
