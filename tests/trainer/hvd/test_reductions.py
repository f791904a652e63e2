"""Every setting of the reduction on four ranks: equal bits, and the weights of one process."""

from collections.abc import Callable

MODULES, RANKS = ("reductions",), 4  # so many that sums are rounded


def test_the_ranks_pass(passed: Callable[[str], None], case: str) -> None:
    passed(case)
