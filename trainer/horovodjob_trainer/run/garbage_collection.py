"""Python's garbage collector, which would examine what an import creates again and again."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Within this context the collector is off. Then it ignores what exists: modules stay until the process ends."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
