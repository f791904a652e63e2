"""`python -m horovodjob_trainer.synthetic_benchmark`: the speed of training steps on a constant random batch.

It has the method and the arguments of the synthetic benchmarks of Horovod, with Horovod for Keras 3: no input pipeline,
warm-up batches, then iterations of some batches each. The result is the mean of the iterations and 1.96 standard
deviations, the range of 95 % of the iterations.
"""

import argparse
import io
import os
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from horovodjob_trainer.errors import TrainerError, UsageError
from horovodjob_trainer.import_string import is_import_string
from horovodjob_trainer.launch import Launch, threads_per_rank, usable_cores

COMPRESSIONS = ("none", "fp16", "bf16")
PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")
CLASSES = 1000
IMAGE_SIZE = 224  # of the user's own model
Z_95 = 1.96
# mpirun ends the other ranks when one exits. Ranks that print nothing wait, so that rank 0 can print the error.
USAGE_ERROR_DELAY_SECONDS = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark on this rank; rank 0 prints. Returns the exit code."""
    launch = Launch.from_environment(os.environ)
    options = _parse_arguments(arguments, launch)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    try:
        _benchmark(options, launch)
    except TrainerError as error:
        if launch.rank == 0:
            print(f"synthetic_benchmark: {error}", file=sys.stderr, flush=True)
        else:
            time.sleep(USAGE_ERROR_DELAY_SECONDS)
        return error.exit_code
    return 0


def _parse_arguments(arguments: Sequence[str] | None, launch: Launch) -> argparse.Namespace:
    if launch.rank == 0:
        return _parser().parse_args(arguments)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            return _parser().parse_args(arguments)
    except SystemExit as end:
        if end.code:
            time.sleep(USAGE_ERROR_DELAY_SECONDS)
        raise


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m horovodjob_trainer.synthetic_benchmark",
        description="Measures the speed of training steps on a constant random batch, with one rank or under mpirun.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--model", default="ResNet50", help="a model of keras.applications, or package.module:function")
    add("--image-size", type=_count, metavar="N", help="height and width of the images; that of the model if not given")
    add("--batch-size", type=_count, default=32, metavar="N", help="images per step and rank")
    add("--num-warmup-batches", type=_count, default=10, metavar="N", help="batches before the measurement")
    add("--num-batches-per-iter", type=_count, default=10, metavar="N", help="batches in an iteration")
    add("--num-iters", type=_count, default=10, metavar="N", help="measured iterations")
    add("--precision", choices=PRECISIONS, default="float32", help="dtype policy of Keras")
    add("--compression", choices=COMPRESSIONS, default="none", help="data type of the gradients in the allreduce")
    add("--fp16-allreduce", action="store_const", const="fp16", dest="compression", default="none",
        help="the same as --compression fp16")  # fmt: skip
    add("--groups", type=_count, metavar="N", help="number of groups in which the gradients are reduced; the default "
        "of hvd.DistributedOptimizer if not given")  # fmt: skip
    add("--threads", type=_count, metavar="N", help="threads of each rank; the usable cores divided by the ranks of "
        "the node if not given")  # fmt: skip
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def _benchmark(options: argparse.Namespace, launch: Launch) -> None:
    import absl.logging

    absl.logging.set_verbosity(absl.logging.ERROR)
    import keras
    import numpy as np
    import tensorflow as tf

    from horovodjob_trainer import hvd
    from horovodjob_trainer.run.ranks import configure_devices

    hvd.init()
    configure_devices(options.threads or threads_per_rank(launch, usable_cores()), launch)
    keras.config.set_dtype_policy(options.precision)
    model = _build_model(options.model, options.image_size)
    images = tf.random.uniform([options.batch_size, *model.input_shape[1:]])
    labels = tf.random.uniform([options.batch_size], maxval=model.output_shape[-1], dtype=tf.int32)
    step = _build_step_function(model, options, images, labels)

    def run_batches(count: int) -> float:
        """Seconds for this number of batches."""
        start = time.perf_counter()
        for _ in range(count):
            loss = step()
        float(loss)  # waits until the device has computed the last batch
        return time.perf_counter() - start

    _log(f"Model: {options.model}, images of {' x '.join(map(str, model.input_shape[1:3]))} pixels")
    _log(f"Batch size: {options.batch_size} per rank, {options.precision}")
    gradient_bytes = sum(4 * int(np.prod(variable.shape)) for variable in model.trainable_variables)
    _log(f"Number of ranks: {hvd.size()}")
    _log(f"Gradients: {gradient_bytes / 1e6:.1f} MB in float32, compression {options.compression}")
    _log("Running warm-up...")
    run_batches(options.num_warmup_batches)
    _log("Running benchmark...")
    rates: list[float] = []
    for number in range(options.num_iters):
        images_per_iteration = options.batch_size * options.num_batches_per_iter
        rates.append(images_per_iteration / run_batches(options.num_batches_per_iter))
        _log(f"Iter #{number}: {rates[-1]:.1f} images/s per rank")
    totals = np.sum(hvd.allgather_object(rates), axis=0)
    mean, deviation = np.mean(totals), Z_95 * np.std(totals)
    _log(f"Images/s per rank: {mean / hvd.size():.1f} +- {deviation / hvd.size():.1f}")
    _log(f"Total images/s on {hvd.size()} ranks: {mean:.1f} +- {deviation:.1f}")
    hvd.shutdown()


def _build_model(name: str, image_size: int | None) -> Any:
    """A model with random weights. Raises UsageError or ModelError."""
    import keras

    from horovodjob_trainer import models

    if is_import_string(name):
        side = image_size or IMAGE_SIZE
        return models.build_model(name, shape=(side, side, 3), classes=CLASSES)
    builders = {each: value for each, value in vars(keras.applications).items() if each[0].isupper()}
    if name not in builders:
        raise UsageError(
            f"--model {name}: keras.applications has no such model; choose package.module:function or one of "
            f"{', '.join(sorted(builders))}"
        )
    shape = {} if image_size is None else {"input_shape": (image_size, image_size, 3)}
    try:  # without a softmax, which would overflow in float16
        return builders[name](weights=None, classes=CLASSES, classifier_activation=None, **shape)
    except ValueError as error:
        raise UsageError(f"--model {name} --image-size {image_size}: {' '.join(str(error).split())}") from error


def _build_step_function(model: Any, options: argparse.Namespace, images: Any, labels: Any) -> Any:
    """A compiled function that trains on the batch and returns the loss. All ranks start with equal weights."""
    import keras
    import tensorflow as tf

    from horovodjob_trainer import hvd

    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.01), compression=getattr(hvd.Compression, options.compression), groups=options.groups
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    hvd.broadcast_variables([*model.weights, *model.optimizer.variables], root_rank=0)

    # As a captured tensor, the batch stays on the device.
    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def step() -> Any:
        return model.train_step((images, labels))["loss"]

    return step


def _log(text: str) -> None:
    from horovodjob_trainer import hvd

    if hvd.rank() == 0:
        print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
