"""Every optimizer of Keras and every setting on four ranks: equal bits, and the weights of one process."""

from collections.abc import Callable

MODULES, RANKS = ("optimizers",), 4  # so many that sums are rounded


def test_the_ranks_pass(passed: Callable[[str], None], case: str) -> None:
    passed(case)
