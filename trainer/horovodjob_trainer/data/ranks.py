"""The ranks that load a data set together. Work that is the same on all of them is done once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, TypeVar

from horovodjob_trainer.errors import DataError

T = TypeVar("T")
WAIT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Ranks:
    """This rank and its exchange with the others. All ranks call the same methods in the same order.

    The default is a process without other ranks. `is_first_of_node` is true on one rank of each node.
    """

    rank: int = 0
    size: int = 1
    is_first_of_node: bool = True
    allgather: Callable[[Any], list[Any]] = lambda value: [value]
    broadcast: Callable[[Any], Any] = lambda value: value
    log: Callable[[str], None] = lambda _: None
    note: Callable[[str], None] = lambda _: None  # for what the user must know, also where `log` prints nothing

    def call_on_first(self, action: Callable[[], T]) -> T:
        """The result of the action on rank 0. If it raises DataError, all ranks raise it."""
        value, problem = self.broadcast(self._outcome(action if self.rank == 0 else lambda: None))
        if problem is not None:
            raise DataError(problem)
        return value  # type: ignore[no-any-return]

    def call_on_each(self, action: Callable[[], T]) -> list[T]:
        """The results of the action on all ranks, by rank. If it raises DataError on one, all ranks raise the first."""
        results = self.allgather(self._outcome(action))
        if problem := next((problem for _, problem in results if problem is not None), None):
            raise DataError(problem)
        return [value for value, _ in results]

    def _outcome(self, action: Callable[[], T]) -> tuple[T | None, str | None]:
        """The result of the action, or the message of its DataError, when the action of every rank has ended."""
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(action)
            # Horovod warns if a rank waits for another for a minute, and a listing can take longer.
            while not all(self.allgather(not wait([future], WAIT_SECONDS).not_done)):
                pass
        try:
            return future.result(), None
        except DataError as error:
            return None, str(error)
