"""The exchange between the ranks: the only modules of this package that import Horovod or MPI.

The variable HOROVODJOB_EXCHANGE selects it: `horovod`, or `mpi4py`, which is also that of a Python without Horovod.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from horovodjob_trainer.hvd.exchange.interface import Exchange
from horovodjob_trainer.hvd.exchange.selection import selected
from horovodjob_trainer.watch.activity import ACTIVITY

WAITING = ("allgather", "allgather_object", "allreduce", "broadcast", "broadcast_object", "grouped_allreduce", "join")

is_concurrent = True
"""Whether operations of different kinds and names can run at the same time, in any order."""

exchange: Exchange  # mypy accepts no module with constants for a protocol; a test compares the names
if selected() == "horovod":
    from horovodjob_trainer.hvd.exchange import over_horovod

    exchange = over_horovod
else:
    from horovodjob_trainer.hvd.exchange import over_mpi

    exchange, is_concurrent = cast(Exchange, over_mpi), False


def _waiting(operation: Callable[..., Any]) -> Callable[..., Any]:
    """The operation, during which this rank shows that it waits for the others."""

    @wraps(operation)
    def wait(*arguments: Any, **options: Any) -> Any:
        with ACTIVITY.exchange():
            return operation(*arguments, **options)

    return wait


for _name in WAITING:
    setattr(exchange, _name, _waiting(getattr(exchange, _name)))
