"""`python -m horovodjob_trainer predict|evaluate|export`: the use of a trained model, on one rank or several."""

import io
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from horovodjob_trainer import data
from horovodjob_trainer.cli.inference_arguments import build_request, parse_arguments
from horovodjob_trainer.errors import DataError, ModelError, TrainerError, UsageError, one_line
from horovodjob_trainer.import_string import is_import_string
from horovodjob_trainer.launch import Launch, threads_per_rank, usable_cores
from horovodjob_trainer.run import garbage_collection
from horovodjob_trainer.run.inference.predictions import prediction_lines, write_lines

# mpirun ends the other ranks when one exits. Ranks that print nothing wait, so that rank 0 can print the error.
USAGE_ERROR_DELAY_SECONDS = 10.0


def main(arguments: Sequence[str]) -> int:
    """Run `predict ...`, `evaluate ...` or `export ...`. Returns the exit code; rank 0 prints an error."""
    launch = Launch.from_environment(os.environ)
    try:
        with nullcontext() if launch.rank == 0 else redirect_stdout(io.StringIO()):
            options = parse_arguments(arguments)
        return _run(options, launch)
    except TrainerError as error:
        if launch.rank == 0:
            print(f"horovodjob_trainer: {error}", file=sys.stderr, flush=True)
        elif isinstance(error, UsageError):
            time.sleep(USAGE_ERROR_DELAY_SECONDS)
        return error.exit_code


def _run(options: SimpleNamespace, launch: Launch) -> int:
    with garbage_collection.paused():
        import absl.logging

        absl.logging.set_verbosity(absl.logging.ERROR)  # Keras warns that .h5 is legacy
        from horovodjob_trainer import hvd
        from horovodjob_trainer.run.ranks import call_on_all_ranks, configure_devices, loading_ranks, wait_for_all_ranks

    hvd.init()
    threads = options.threads or threads_per_rank(launch, usable_cores())
    configure_devices(threads, launch)
    if options.command == "export":
        call_on_all_ranks(lambda: _export(options) if hvd.rank() == 0 else None, launch)
        return 0
    task = options.task if options.command == "evaluate" else None
    model = call_on_all_ranks(lambda: _load_model(options.model, with_loss=task is None), launch)
    loading = loading_ranks(launch, lambda _: None, note=_print_note)  # stdout may be for the predictions
    test = call_on_all_ranks(lambda: _source(options, model, threads, loading), launch)
    if options.command == "evaluate":
        metrics = call_on_all_ranks(lambda: _evaluate(model, test, options, threads), launch)
        if hvd.rank() == 0:
            _print_metrics(metrics, test.samples, as_json=options.json)
    else:
        outputs = call_on_all_ranks(lambda: _predict(model, test, options.batch_size, threads), launch)
        parts = hvd.allgather_object(outputs)
        call_on_all_ranks(
            lambda: _write(options, test, parts, of_classes=_predicts_classes(model)) if hvd.rank() == 0 else None,
            launch,
        )
    wait_for_all_ranks()
    return 0


def _export(options: SimpleNamespace) -> None:
    from horovodjob_trainer.run.inference.export import export_model

    file_format = options.format or ("onnx" if options.output.suffix == ".onnx" else "saved-model")
    export_model(_load_model(options.model, with_loss=False), options.output, file_format)
    print(f"Exported the model as {file_format} at {options.output}", flush=True)


def _load_model(path: Path, *, with_loss: bool = True) -> Any:
    import keras

    if not path.is_file():
        raise ModelError(f"{path} does not exist; set --model to the file of a trained model")
    if os.getcwd() not in sys.path:  # for the user's own layers
        sys.path.insert(0, os.getcwd())
    import_module("horovodjob_trainer.run.optimization.lars")  # registers the optimizer of a saved model
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the optimizer, which is not needed here
            return keras.models.load_model(path, compile=with_loss)
    except Exception as error:  # Keras, h5py and zipfile raise many types
        if "`Lambda` layer" in str(error):  # Keras runs none
            raise ModelError(
                f"{path} has a Lambda layer, whose code in the file is not run; save the model with a layer of Keras "
                "instead"
            ) from error
        reason = " ".join(str(error).split())[:300]
        raise ModelError(
            f"{path} cannot be loaded as a Keras model: {reason}; use a complete .keras or .h5 file, and start "
            "where custom layers of the model can be imported"
        ) from error


def _source(options: SimpleNamespace, model: Any, threads: int, ranks: data.Ranks) -> data.Source:
    """The examples; images have the size that the model requires."""
    shape = model.input_shape if model.built and isinstance(model.input_shape, tuple) else ()
    is_function = options.dataset is not None and is_import_string(options.dataset)
    if not is_function and (not shape or any(isinstance(each, tuple) for each in shape)):
        raise ModelError(f"{options.model} must have a single input with a fixed shape")
    shape = shape[1:]
    size = shape[0] if len(shape) == 3 and shape[0] else options.image_size
    if options.dataset is None:
        exif = options.exif == "apply"
        source = data.unlabelled_examples(options.data, size, options.validation_crop, exif=exif, log=ranks.note)
    else:
        source = data.load_dataset(build_request(options, size, threads=threads), ranks).test
    if isinstance(source, data.Elements):
        return source
    if len(shape) != len(source.shape) or any(a not in (None, b) for a, b in zip(shape, source.shape, strict=True)):
        raise DataError(
            f"the model requires examples of shape {shape}, and {options.data or options.dataset} has examples of "
            f"shape {source.shape}; use data of the same shape as for training"
        )
    return source


def _print_note(text: str) -> None:
    from horovodjob_trainer import hvd

    if hvd.rank() == 0:
        print(f"horovodjob_trainer: {one_line(text)}", file=sys.stderr, flush=True)


def _evaluate(model: Any, test: data.Source, options: SimpleNamespace, threads: int) -> dict[str, float]:
    """Loss and metrics over the examples of all ranks, in which each example has the same weight."""
    from horovodjob_trainer import hvd
    from horovodjob_trainer.run.metrics.evaluation import metrics_over_ranks

    outputs = model.output_shape[-1]
    if test.classes is not None and outputs not in (1, None) and test.classes > outputs:
        raise DataError(f"the model has {outputs} classes, and the data has {test.classes}; use other data")
    _compile(model, test.classes, options.task)
    values = _apply_to_batches(
        model, test, lambda batches: model.evaluate(batches, verbose=0, return_dict=True), options.batch_size, threads
    )
    return metrics_over_ranks(model, values or {}, len(range(hvd.rank(), test.samples, hvd.size())))


def _compile(model: Any, classes: int | None, task: str | None) -> None:
    """Compile the model with the loss of the task or, unless its own loss accepts them, one for integer labels."""
    import keras

    from horovodjob_trainer.run.optimization.loss import CATEGORICAL, loss_and_metrics, loss_name, sparse_metrics
    from horovodjob_trainer.run.optimization.task import task_loss_and_metrics

    if task is not None:
        loss, metrics = task_loss_and_metrics(task, classes)
        model.compile(loss=loss, metrics=metrics)
        return
    has_logits = False
    if model.compiled:
        if classes is None or loss_name(model) != CATEGORICAL:
            return
        has_logits = bool(getattr(model.loss, "from_logits", False))
    if classes is None:
        loss, metrics = loss_and_metrics(None, 0.0)
        model.compile(loss=loss, metrics=metrics)
    else:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=has_logits)
        model.compile(loss=loss, metrics=sparse_metrics(classes))


def _predicts_classes(model: Any) -> bool:
    """Whether the outputs are classes: of a cross-entropy loss or, without a loss, of a softmax."""
    if len(model.output_shape) != 2 or model.output_shape[1] == 1:
        return False
    if model.compiled:
        from horovodjob_trainer.run.optimization.loss import loss_name

        return "crossentropy" in loss_name(model)
    return "softmax" in str(getattr(getattr(model.layers[-1], "activation", None), "__name__", ""))


def _predict(model: Any, source: data.Source, batch: int, threads: int) -> Any:
    return _apply_to_batches(model, source, lambda batches: model.predict(batches, verbose=0), batch, threads)


def _apply_to_batches(model: Any, source: data.Source, function: Callable[[Any], Any], batch: int, threads: int) -> Any:
    """The result of the function for the batches of this rank, None if it has none. Raises DataError."""
    import tensorflow as tf

    from horovodjob_trainer import hvd
    from horovodjob_trainer.data.reading.example_reader import data_error
    from horovodjob_trainer.run import pipeline
    from horovodjob_trainer.run.metrics.evaluation import prepare_in_steps

    if hvd.rank() >= source.samples:
        return None
    try:
        rank, size = hvd.rank(), hvd.size()
        prepare_in_steps(model, pipeline.batch_preparation(source))
        return function(pipeline.evaluation_batches(source, batch=batch, rank=rank, size=size, threads=threads))
    except tf.errors.OpError as error:
        raise data_error(error, source) or error from error


def _print_metrics(metrics: dict[str, float], samples: int, *, as_json: bool) -> None:
    from horovodjob_trainer.reporting.metric_values import without_elements

    if as_json:
        print(json.dumps({"samples": samples, **metrics}), flush=True)
        return
    for name, value in sorted(without_elements(metrics).items(), key=lambda entry: entry[0] != "loss"):
        print(f"Test {name}: {value:.4f}")
    sys.stdout.flush()


def _write(options: SimpleNamespace, source: data.Source, parts: Sequence[Any], *, of_classes: bool) -> None:
    import numpy as np

    outputs = np.empty((source.samples, *next(part for part in parts if part is not None).shape[1:]), np.float32)
    for rank, part in enumerate(parts):
        if part is not None:
            outputs[rank :: len(parts)] = part
    write_lines(prediction_lines(source, outputs, of_classes=of_classes), options.output)
