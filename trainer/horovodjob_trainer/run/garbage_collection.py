"""Python's garbage collector, which would examine what an import creates again and again."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Import modules without it. It ignores afterwards what exists at the end: modules stay until the process ends."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
