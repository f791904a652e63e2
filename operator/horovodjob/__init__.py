"""HorovodJob: distributed Keras/TensorFlow training with Horovod on Kubernetes.

`from horovodjob import Client` is the Python interface. It is imported when it is used: the operator, whose image has
no client of Kubernetes, shares this package.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horovodjob_cli.client import Client, Job
    from horovodjob_cli.errors import ClientError, NotFound, UsageError

__all__ = ["Client", "ClientError", "Job", "NotFound", "UsageError"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        module = "horovodjob_cli.client" if name in ("Client", "Job") else "horovodjob_cli.errors"
        return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
