"""The exchange between the ranks: the only modules of this package that import Horovod or MPI.

The variable HOROVODJOB_EXCHANGE selects it: `horovod`, the default, or the experiment `mpi4py`.
"""

import os
from typing import cast

from horovodjob_trainer.hvd.exchange.interface import Exchange

VARIABLE = "HOROVODJOB_EXCHANGE"

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
