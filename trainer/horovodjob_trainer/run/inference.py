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
from typing import Any

from horovodjob_trainer import data
from horovodjob_trainer.cli.inference_arguments import parsed, request
from horovodjob_trainer.errors import DataError, ModelError, TrainerError, UsageError
from horovodjob_trainer.launch import Launch, threads_per_rank, usable_cores
from horovodjob_trainer.run.predictions import lines, written

# mpirun ends the other ranks when one exits, so those with nothing to say leave rank 0 the time to speak.
YIELD_SECONDS = 10.0


def main(arguments: Sequence[str]) -> int:
    """Runs `predict ...` or `evaluate ...` and gives the exit status; complaints are one sentence of rank 0."""
    launch = Launch.from_environment(os.environ)
    try:
        with nullcontext() if launch.rank == 0 else redirect_stdout(io.StringIO()):
            given = parsed(arguments)
        return _run(given, launch)
    except TrainerError as error:
        if launch.rank == 0:
            print(f"horovodjob_trainer: {error}", file=sys.stderr, flush=True)
        elif isinstance(error, UsageError):
            time.sleep(YIELD_SECONDS)
        return error.exit_code


def _run(given: argparse.Namespace, launch: Launch) -> int:
    import absl.logging

    absl.logging.set_verbosity(absl.logging.ERROR)  # Keras calls .h5 legacy
    from horovodjob_trainer import hvd
    from horovodjob_trainer.run.training import on_all_ranks, use_devices, wait_for_all_ranks

    hvd.init()
    threads = given.threads or threads_per_rank(launch, usable_cores())
    use_devices(threads)
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
        source = data.opened(request(given, size, threads=threads)).test
    if len(shape) != len(source.shape) or any(a not in (None, b) for a, b in zip(shape, source.shape, strict=True)):
        raise DataError(
            f"the model takes examples of shape {shape}, and those of {given.data or given.dataset} have "
            f"{source.shape}; give data like what it was trained on"
        )
    return source


def _evaluated(model: Any, test: data.Source, batch: int, threads: int) -> dict[str, float]:
    """Loss and metrics over the examples of all ranks together, each example weighing the same."""
    from horovodjob_trainer import hvd
    from horovodjob_trainer.run.coordination import averaged

    known = model.output_shape[-1]
    if test.classes is not None and known not in (1, None) and test.classes > known:
        raise DataError(f"the model tells {known} classes apart, and the data has {test.classes}; give other data")
    _compile(model, test.classes)
    values = _examined(test, lambda batches: model.evaluate(batches, verbose=0, return_dict=True), batch, threads)
    return averaged(values or {}, len(range(hvd.rank(), test.samples, hvd.size())))


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

    from horovodjob_trainer import hvd
    from horovodjob_trainer.run import pipeline

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
