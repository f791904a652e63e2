"""The run itself, the same on every rank: data, model, epochs, result."""

import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

import keras
import numpy as np
import tensorflow as tf

from horovodjob_trainer import data, hvd
from horovodjob_trainer.checkpoint import Output, opened_output
from horovodjob_trainer.configuration import Configuration
from horovodjob_trainer.errors import TrainerError
from horovodjob_trainer.launch import Launch, threads_per_rank, usable_cores
from horovodjob_trainer.model import tutorial_cnn
from horovodjob_trainer.pipeline import evaluation_batches, training_batches

T = TypeVar("T")


class JobError(TrainerError):
    """Some rank met an error that a sentence explains; every rank raises it."""


def train(configuration: Configuration, launch: Launch) -> None:
    """Trains as configured. Every rank of the job calls it once, after `hvd.init()`."""
    threads = configuration.threads or threads_per_rank(launch, usable_cores())
    _use_devices(threads)
    rank, size = hvd.rank(), hvd.size()
    say: Callable[[str], None] = _print if rank == 0 else _silence
    say(f"Training {configuration.dataset.value} on {_count(size, 'rank')} with {_count(threads, 'thread')} each")

    resume = launch.attempt > 1
    output = _on_all_ranks(
        lambda: (
            opened_output(configuration.directory, resume=resume, dataset=configuration.dataset.value)
            if rank == 0
            else None
        )
    )
    dataset = _on_all_ranks(lambda: data.dataset(configuration))
    say(f"x_train shape: {dataset.train.images.shape}")
    say(f"{len(dataset.train)} train samples")
    say(f"{len(dataset.test)} test samples")

    keras.utils.set_random_seed((configuration.seed + rank) % 2**32)
    model = tutorial_cnn()
    compile_model(model, learning_rate=configuration.learning_rate)
    done = 0
    if resume:
        done = hvd.broadcast_object(output.restored_epoch(model, say) if output is not None else None, root_rank=0)
        say(f"Attempt {launch.attempt}: going on after epoch {done}" if done else
            f"Attempt {launch.attempt}: no checkpoint of this run yet, starting from the beginning")  # fmt: skip

    say("Using real-time data augmentation." if configuration.augment else "Not using data augmentation.")
    test = dataset.test.shard(rank, size)
    fit(model, dataset.train, test, configuration, done=done, output=output, say=say)

    loss, accuracy = evaluation(model, test)
    if output is not None:
        output.save_models(model)
        for path in output.models:
            say(f"Saved trained model at {path}")
    say(f"Test loss: {loss:.4f}")
    say(f"Test accuracy: {accuracy:.4f}")
    _wait_for_all_ranks()  # until then, an attempt after this one finds the last checkpoint
    if output is not None:
        output.finish()


def compile_model(model: Any, *, learning_rate: float) -> None:
    """Compiles with the tutorial's optimizer, synchronised, at the job's learning rate."""
    optimizer = keras.optimizers.RMSprop(learning_rate * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer)
    optimizer.build(model.trainable_variables)
    model.compile(
        optimizer=optimizer,
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
        jit_compile=False,
    )


def fit(
    model: Any,
    train_split: data.Split,
    test_shard: data.Split,
    configuration: Configuration,
    *,
    done: int = 0,
    output: Output | None = None,
    say: Callable[[str], None],
) -> None:
    """Trains from epoch `done` to the last, with rank 0's weights at the start."""
    rank, size = hvd.rank(), hvd.size()
    steps = steps_per_epoch(len(train_split), configuration.batch_size)
    rate = configuration.learning_rate * size
    callbacks: list[Any] = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateScheduleCallback(
            rate,
            lambda epoch: 1 / (1 + configuration.decay * epoch * steps),
            start_epoch=configuration.warmup_epochs,
            staircase=False,
        ),
    ]
    if configuration.warmup_epochs:
        callbacks.append(hvd.callbacks.LearningRateWarmupCallback(rate, configuration.warmup_epochs))
    callbacks.append(_Validation(test_shard))
    if rank == 0:
        callbacks.append(_Report(configuration, steps=steps, job_batch=configuration.batch_size * size, say=say))
    if output is not None:
        callbacks.append(_Checkpoints(output))
    batches = training_batches(
        train_split,
        batch=configuration.batch_size,
        rank=rank,
        size=size,
        seed=configuration.seed,
        first_step=done * steps,
        augment=configuration.augment,
        flip=configuration.flip,
    )
    model.fit(
        batches,
        steps_per_epoch=steps,
        initial_epoch=done,
        epochs=configuration.epochs,
        callbacks=callbacks,
        shuffle=False,  # the batches have their order
        verbose=0,
    )


def steps_per_epoch(samples: int, batch_size: int) -> int:
    """Steps of an epoch on every rank: as many as one rank needs to see all samples."""
    return math.ceil(samples / batch_size)


def evaluation(model: Any, shard: data.Split) -> tuple[float, float]:
    """Loss and accuracy over the shards of all ranks together, each image weighing the same."""
    loss = accuracy = 0.0
    if len(shard):
        loss, accuracy = model.evaluate(evaluation_batches(shard, batch=250), verbose=0)
    weighted = np.array([loss * len(shard), accuracy * len(shard), len(shard)], dtype=np.float64)
    total = hvd.allreduce(weighted, op=hvd.Sum, name="evaluation").numpy()
    return float(total[0] / total[2]), float(total[1] / total[2])


class _Validation(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self, shard: data.Split) -> None:
        super().__init__()
        self.shard = shard

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        loss, accuracy = evaluation(self.model, self.shard)
        if logs is not None:
            logs["val_loss"], logs["val_accuracy"] = loss, accuracy


class _Report(keras.callbacks.Callback):  # type: ignore[misc]
    """A line per epoch, and one every few seconds inside it. Rates count the images of all ranks."""

    def __init__(self, configuration: Configuration, *, steps: int, job_batch: int, say: Callable[[str], None]) -> None:
        super().__init__()
        self.epochs, self.seconds = configuration.epochs, configuration.log_seconds
        self.steps, self.job_batch, self.say = steps, job_batch, say
        self.epoch = self.last_step = 0
        self.started = self.last_time = self.trained = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch, self.last_step = epoch, 0
        self.started = self.last_time = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self.trained = time.monotonic()
        step = batch + 1
        elapsed = self.trained - self.last_time
        if elapsed < self.seconds or step == self.steps:
            return
        rate = (step - self.last_step) * self.job_batch / elapsed
        self.say(f"{self._head(step)} {_metrics(logs or {}, ('loss', 'accuracy'))} {rate:.0f} images/s")
        self.last_step, self.last_time = step, self.trained

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        metrics = _metrics(logs or {}, ("loss", "accuracy", "val_loss", "val_accuracy"))
        rate = self.steps * self.job_batch / max(self.trained - self.started, 1e-9)
        self.say(f"{self._head(self.steps)} {metrics} {rate:.0f} images/s")

    def _head(self, step: int) -> str:
        return f"Epoch {self.epoch + 1}/{self.epochs} {step}/{self.steps}"


class _Checkpoints(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self, output: Output) -> None:
        super().__init__()
        self.output = output

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.output.save_checkpoint(self.model, epoch + 1)


def _metrics(logs: dict[str, Any], names: tuple[str, ...]) -> str:
    return " ".join(f"{name} {float(logs[name]):.4f}" for name in names if name in logs)


def _on_all_ranks(action: Callable[[], T]) -> T:
    """The action's value on this rank, if it succeeded on every rank; else the same JobError everywhere."""
    value, problem = None, None
    try:
        value = action()
    except TrainerError as error:
        problem = str(error)
    problems = hvd.allgather_object(problem)
    met = [(rank, text) for rank, text in enumerate(problems) if text is not None]
    if met:
        rank, text = met[0]
        raise JobError(text if len(met) == len(problems) or rank == 0 else f"rank {rank}: {text}")
    return value  # type: ignore[return-value]


def _wait_for_all_ranks() -> None:
    hvd.allgather_object(None)


def _use_devices(threads: int) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(max(2, threads))
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _print(text: str) -> None:
    print(text, flush=True)


def _silence(text: str) -> None:
    pass
