"""`python -m horovodjob_trainer predict|evaluate`: what comes after training, on one rank or several."""

import argparse
import io
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any, NoReturn

from horovodjob_trainer import data, parsing
from horovodjob_trainer.errors import DataError, ModelError, TrainerError, UsageError
from horovodjob_trainer.launch import Launch, threads_per_rank, usable_cores
from horovodjob_trainer.predictions import FORMATS, lines, written
from horovodjob_trainer.settings import SETTINGS

DATA_SETTINGS = ("dataset", "data", "archive", "archive-url", "archive-sha256", "data-dir", "validation-share",
                 "image-size", "seed", "threads")  # fmt: skip
# mpirun ends the other ranks when one exits, so those with nothing to say leave rank 0 the time to speak.
YIELD_SECONDS = 10.0
FAILED = 1


def main(arguments: Sequence[str]) -> int:
    """Runs `predict ...` or `evaluate ...` and gives the exit status; complaints are one sentence of rank 0."""
    launch = Launch.from_environment(os.environ)
    try:
        with nullcontext() if launch.rank == 0 else redirect_stdout(io.StringIO()):
            given = _arguments(arguments)
        return _run(given, launch)
    except TrainerError as error:
        if launch.rank == 0:
            print(f"horovodjob_trainer: {error}", file=sys.stderr, flush=True)
        elif isinstance(error, UsageError):
            time.sleep(YIELD_SECONDS)
        return error.exit_code


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _parser(arguments[0])
    given = parser.parse_args(arguments[1:])
    given.command = arguments[0]
    if given.command == "predict" and given.dataset is None and given.data is None:
        raise UsageError("predict needs --data with pictures, or --dataset")
    if given.command == "evaluate" and given.dataset is None:
        given.dataset = SETTINGS["dataset"].default
    if given.dataset is not None and (sentence := data.problem(_request(given, 1, threads=1))) is not None:
        raise UsageError(sentence)
    return given


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _parser(command: str) -> argparse.ArgumentParser:
    predicts = command == "predict"
    parser = _Parser(
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
        setting = SETTINGS[name]
        default = None if name == "dataset" or setting.default is None else setting.parse(setting.default)
        about = setting.help.replace("%", "%%") + (f" (default: {default})" if default is not None else "")
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


def _run(given: argparse.Namespace, launch: Launch) -> int:
    import absl.logging

    absl.logging.set_verbosity(absl.logging.ERROR)  # Keras calls .h5 legacy
    from horovodjob_trainer import hvd
    from horovodjob_trainer.training import on_all_ranks, wait_for_all_ranks

    hvd.init()
    threads = given.threads or threads_per_rank(launch, usable_cores())
    model = on_all_ranks(lambda: _model(given.model), launch)
    test = on_all_ranks(lambda: _source(given, model, threads), launch)
    if given.command == "evaluate":
        found = on_all_ranks(lambda: _evaluated(model, test, given.batch_size, threads), launch)
        if hvd.rank() == 0:
            _print_evaluation(found, test.samples, as_json=given.json)
    else:
        outputs = on_all_ranks(lambda: _outputs(model, test, given.batch_size, threads), launch)
        parts = hvd.allgather_object(outputs)
        on_all_ranks(
            lambda: _write(given, test, parts, of_classes=_ends_in_classes(model)) if hvd.rank() == 0 else None, launch
        )
    wait_for_all_ranks()
    return 0


def _model(path: Path) -> Any:
    import keras

    if not path.is_file():
        raise ModelError(f"{path} does not exist; give the file of a trained model with --model")
    if os.getcwd() not in sys.path:  # where a model's own layers are looked for
        sys.path.insert(0, os.getcwd())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the optimizer, which nothing here needs
            return keras.models.load_model(path)
    except Exception as error:  # whatever Keras, h5py or zipfile meet in a file
        reason = " ".join(str(error).split())[:300]
        raise ModelError(
            f"{path} cannot be loaded as a Keras model: {reason}; give a whole .keras or .h5 file, and start where "
            "its own layers can be imported"
        ) from error


def _request(given: argparse.Namespace, size: int, *, threads: int) -> data.Request:
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


def _source(given: argparse.Namespace, model: Any, threads: int) -> data.Source:
    """The examples, those of files in the size that the model takes."""
    shape = model.input_shape if model.built and isinstance(model.input_shape, tuple) else ()
    if not shape or any(isinstance(each, tuple) for each in shape):
        raise ModelError(f"{given.model} takes more than one array, or arrays of any shape; it needs one fixed shape")
    shape = shape[1:]
    size = shape[0] if len(shape) == 3 and shape[0] else given.image_size
    if given.dataset is None:
        source = data.unlabelled(given.data, size)
    else:
        source = data.opened(_request(given, size, threads=threads)).test
    if len(shape) != len(source.shape) or any(a not in (None, b) for a, b in zip(shape, source.shape, strict=True)):
        raise DataError(
            f"the model takes examples of shape {shape}, and those of {given.data or given.dataset} have "
            f"{source.shape}; give data like what it was trained on"
        )
    return source


def _evaluated(model: Any, test: data.Source, batch: int, threads: int) -> dict[str, float]:
    """Loss and metrics over the examples of all ranks together, each example weighing the same."""
    import numpy as np

    from horovodjob_trainer import hvd

    known = model.output_shape[-1]
    if test.classes is not None and known not in (1, None) and test.classes > known:
        raise DataError(f"the model tells {known} classes apart, and the data has {test.classes}; give other data")
    _compile(model, test.classes)
    values = _examined(test, lambda batches: model.evaluate(batches, verbose=0, return_dict=True), batch, threads)
    mine = len(range(hvd.rank(), test.samples, hvd.size()))
    parts = hvd.allgather_object((mine, values or {}))
    names = next(part for count, part in parts if count)
    return {
        name: float(np.sum([count * part[name] for count, part in parts if count]) / test.samples) for name in names
    }


def _compile(model: Any, classes: int | None) -> None:
    """Gives the model a loss that takes the labels as they are; one that it has is kept if it does."""
    import keras

    outputs_logits = False
    if model.compiled:
        if classes is None or _loss_name(model) != "categorical_crossentropy":
            return
        outputs_logits = bool(getattr(model.loss, "from_logits", False))
    if classes is None:
        model.compile(loss="mean_squared_error", metrics=["mean_absolute_error"])
    else:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=outputs_logits)
        model.compile(loss=loss, metrics=["accuracy"])


def _ends_in_classes(model: Any) -> bool:
    """Whether the model's numbers speak of classes: it was trained so, or is not compiled and ends in a softmax."""
    if len(model.output_shape) != 2 or model.output_shape[1] == 1:
        return False
    if model.compiled:
        return "crossentropy" in _loss_name(model)
    return "softmax" in str(getattr(getattr(model.layers[-1], "activation", None), "__name__", ""))


def _loss_name(model: Any) -> str:
    """Name of the loss, which a model has as a name, a function or an object."""
    loss = model.loss
    return loss if isinstance(loss, str) else str(getattr(loss, "name", None) or getattr(loss, "__name__", ""))


def _outputs(model: Any, source: data.Source, batch: int, threads: int) -> Any:
    return _examined(source, lambda batches: model.predict(batches, verbose=0), batch, threads)


def _examined(source: data.Source, examine: Callable[[Any], Any], batch: int, threads: int) -> Any:
    """What `examine` gives for this rank's batches, None if it has none. Raises DataError for an unreadable file."""
    import tensorflow as tf

    from horovodjob_trainer import hvd, pipeline

    if hvd.rank() >= source.samples:
        return None
    try:
        rank, size = hvd.rank(), hvd.size()
        return examine(pipeline.evaluation_batches(source, batch=batch, rank=rank, size=size, threads=threads))
    except tf.errors.OpError as error:
        raise pipeline.explained(error, source) or error from error


def _print_evaluation(found: dict[str, float], samples: int, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"samples": samples, **found}), flush=True)
        return
    for name, value in sorted(found.items(), key=lambda entry: entry[0] != "loss"):
        print(f"Test {name}: {value:.4f}")
    sys.stdout.flush()


def _write(given: argparse.Namespace, source: data.Source, parts: Sequence[Any], *, of_classes: bool) -> None:
    import numpy as np

    outputs = np.empty((source.samples, *next(part for part in parts if part is not None).shape[1:]), np.float32)
    for rank, part in enumerate(parts):
        if part is not None:
            outputs[rank :: len(parts)] = part
    chosen = given.format or ("jsonl" if given.output and given.output.suffix in (".jsonl", ".json") else "csv")
    written(lines(source, outputs, chosen, of_classes=of_classes), given.output)
