"""HorovodJob: distributed Keras/TensorFlow training with Horovod on Kubernetes.

`from horovodjob import Client` is the Python interface. It is imported when it is used: the operator, whose image has
no client of Kubernetes, shares this package.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horovodjob.client.client import Client, Job
    from horovodjob.client.errors import ClientError, NotFound, Stalled, TimedOut, UsageError
    from horovodjob.sweeps.trials import Trial

__all__ = ["Client", "ClientError", "Job", "NotFound", "Stalled", "TimedOut", "Trial", "UsageError"]
MODULES = {"Client": "horovodjob.client.client", "Job": "horovodjob.client.client", "Trial": "horovodjob.sweeps.trials"}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module(MODULES.get(name, "horovodjob.client.errors")), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
