"""The exchange between the ranks: the only modules of this package that import Horovod or MPI.

The variable HOROVODJOB_EXCHANGE selects it: `horovod`, the default, or the experiment `mpi4py`.
"""

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from horovodjob_trainer.hvd.exchange.interface import Exchange
from horovodjob_trainer.watch.activity import ACTIVITY

VARIABLE = "HOROVODJOB_EXCHANGE"
WAITING = ("allgather", "allgather_object", "allreduce", "broadcast", "broadcast_object", "grouped_allreduce", "join")

is_concurrent = True
"""Whether operations of different kinds and names can run at the same time, in any order."""

exchange: Exchange  # mypy accepts no module with constants for a protocol; a test compares the names
match os.environ.get(VARIABLE) or "horovod":
    case "horovod":
        from horovodjob_trainer.hvd.exchange import over_horovod

        exchange = over_horovod
    case "mpi4py":
        from horovodjob_trainer.hvd.exchange import over_mpi

        exchange, is_concurrent = cast(Exchange, over_mpi), False
    case other:
        raise ImportError(f"{VARIABLE} is {other}, and must be horovod or mpi4py")


def _waiting(operation: Callable[..., Any]) -> Callable[..., Any]:
    """The operation, during which this rank shows that it waits for the others."""

    @wraps(operation)
    def wait(*arguments: Any, **options: Any) -> Any:
        with ACTIVITY.exchange():
            return operation(*arguments, **options)

    return wait


for _name in WAITING:
    setattr(exchange, _name, _waiting(getattr(exchange, _name)))
