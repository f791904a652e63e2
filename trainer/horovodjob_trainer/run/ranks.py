"""Errors, barriers and devices of the ranks of a job."""

import os
from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.data import Ranks
from horovodjob_trainer.errors import JobError, TrainerError, one_line
from horovodjob_trainer.launch import Launch, check_gpus, gpus_of_container, hostname

T = TypeVar("T")


def log(text: str) -> None:
    """Print the line on rank 0."""
    if hvd.is_initialized() and hvd.rank() == 0:  # read each time: elastic Horovod assigns new ranks
        print(one_line(text), flush=True)


def call_on_all_ranks(action: Callable[[], T], launch: Launch) -> T:
    """The result of the action if it succeeds on every rank. Otherwise all ranks raise the same JobError."""
    value, problem = None, None
    try:
        value = action()
    except TrainerError as error:
        problem = str(error)
    if launch.elastic:  # ranks that join later meet ranks that are past this point
        if problem is not None:
            raise JobError(problem)
        return value  # type: ignore[return-value]
    problems = hvd.allgather_object(problem)
    failures = [(rank, text) for rank, text in enumerate(problems) if text is not None]
    if failures:
        rank, text = failures[0]
        raise JobError(text if len(failures) == len(problems) or rank == 0 else f"rank {rank}: {text}")
    return value  # type: ignore[return-value]


def check_on_all_ranks(action: Callable[[], T]) -> T:
    """The result of the action. If it raises an exception on a rank, the other ranks raise JobError with its text."""
    value, own = None, None
    try:
        value = action()
    except Exception as error:
        own = error
    problems = hvd.allgather_object(own and f"{type(own).__name__}: {own}", name="run_check")
    if own is not None:
        raise own
    for rank, problem in enumerate(problems):
        if problem is not None:
            raise JobError(f"rank {rank}: {problem}")
    return value  # type: ignore[return-value]


def loading_ranks(launch: Launch, log: Callable[[str], None], *, note: Callable[[str], None] | None = None) -> Ranks:
    """The ranks that load the data together. With elastic Horovod each rank loads it alone, as ranks join later."""
    if launch.elastic:
        return Ranks(log=log, note=note or log)
    return Ranks(
        rank=hvd.rank(),
        size=hvd.size(),
        is_first_of_node=hvd.local_rank() == 0,
        allgather=hvd.allgather_object,
        broadcast=lambda value: hvd.broadcast_object(value, root_rank=0),
        log=log,
        note=note or log,
    )


def wait_for_all_ranks() -> None:
    """Return when every rank has called this function."""
    hvd.allgather_object(None)


def configure_devices(threads: int, launch: Launch) -> None:
    """Set the threads of this rank and, on a node with GPUs, select the GPU of its local rank with memory growth.

    Raises JobError on all ranks if a node has more ranks than GPUs, or GPUs that TensorFlow does not find.
    """
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    # A single thread would compute the gradients of all biases after the other gradients, and delay their exchange.
    tf.config.threading.set_inter_op_parallelism_threads(max(threads, 2))
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")
    local_size = hvd.local_size() if launch.elastic else ranks_with_same_gpus()
    call_on_all_ranks(lambda: check_gpus(local_size, len(gpus), hostname(), gpus_of_container(os.environ)), launch)


def ranks_with_same_gpus() -> int:
    """The number of ranks on this node that see the same GPUs.

    A script around the program can give each rank a GPU of its own; a variable of the pod is the same for all of them.
    """
    own = hostname(), os.environ.get("CUDA_VISIBLE_DEVICES")
    return int(hvd.allgather_object(own).count(own))
