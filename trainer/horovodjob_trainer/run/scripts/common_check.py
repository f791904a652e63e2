"""A check of a script's run that some ranks pass and others do not: none of them begins the run."""

from collections.abc import Callable
from typing import TypeVar

from horovodjob_trainer import hvd
from horovodjob_trainer.errors import JobError

T = TypeVar("T")


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
