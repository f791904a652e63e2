"""Examples of jobs that need no training: hello, slots, spot and gang, with the commands of their first lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.examples import Examples
from e2e.install import Target
from e2e.namespace import Namespace

RANKS = {"hello": 2, "slots": 16, "spot": 2, "gang": 2}


@pytest.fixture(scope="module")
def examples(
    module_namespace: Namespace, target: Target, images: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Examples]:
    """All of them, in one namespace."""
    made = Examples(module_namespace, target, tmp_path_factory.mktemp("user"), images["mpi"])
    with ThreadPoolExecutor(len(RANKS)) as pool:
        for name in RANKS:
            made.start(pool, name)
        yield made


@pytest.mark.parametrize("name", RANKS)
def test_an_example_runs_as_it_stands(examples: Examples, name: str) -> None:
    ranks = re.findall(r"^rank ([0-9]+) of ([0-9]+) in (\S+)$", examples.output(name), re.MULTILINE)
    assert sorted(int(rank) for rank, _, _ in ranks) == list(range(RANKS[name]))
    assert {pod for _, _, pod in ranks} == {f"{name}-worker-0", f"{name}-worker-1"}
