"""HorovodJob: distributed Keras/TensorFlow training with Horovod on Kubernetes.

`from horovodjob import Client` is the Python interface. It is imported when it is used: the operator, whose image has
no client of Kubernetes, shares this package.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horovodjob.sweeps.trials import Trial
    from horovodjob_cli.client import Client, Job
    from horovodjob_cli.errors import ClientError, NotFound, Stalled, TimedOut, UsageError

__all__ = ["Client", "ClientError", "Job", "NotFound", "Stalled", "TimedOut", "Trial", "UsageError"]
MODULES = {"Client": "horovodjob_cli.client", "Job": "horovodjob_cli.client", "Trial": "horovodjob.sweeps.trials"}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module(MODULES.get(name, "horovodjob_cli.errors")), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
