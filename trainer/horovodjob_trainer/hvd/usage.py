"""What this process has used of Horovod, for checks."""

from dataclasses import dataclass


@dataclass(slots=True)
class Usage:
    """The uses of Horovod in this process."""

    gradient_reductions: int = 0
    """Number of reductions of the gradients of a step, where a traced function counts once."""
    allreduces: int = 0
    """Number of allreduce operations, counted in the same way."""


USAGE = Usage()
