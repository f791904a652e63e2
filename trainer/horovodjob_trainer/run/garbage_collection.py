"""Python's garbage collector, which would examine what an import creates again and again."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Within this context the collector is off. Afterwards it ignores what exists, such as the modules."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
