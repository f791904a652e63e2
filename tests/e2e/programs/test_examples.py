"""Examples of jobs that need no training, as they stand but for the image: hello, slots, spot and gang."""

from __future__ import annotations

import re

import pytest
import yaml

from e2e.install import ROOT
from e2e.namespace import Namespace
from support.api_client import Object

RANKS = {"hello": 2, "slots": 16, "spot": 2, "gang": 2}


def example(name: str, image: str) -> Object:
    text = (ROOT / "manifests" / "examples" / f"{name}.yaml").read_text()
    loaded: Object = yaml.safe_load(re.sub(r"(?m)^  image: .*$", f"  image: {image}", text))
    return loaded


@pytest.fixture(scope="module")
def namespace(module_namespace: Namespace, images: dict[str, str]) -> Namespace:
    """The namespace, with all jobs in it."""
    module_namespace.apply(*(example(name, images["mpi"]) for name in RANKS))
    return module_namespace


@pytest.mark.parametrize("name", RANKS)
def test_an_example_runs_as_it_stands(namespace: Namespace, name: str) -> None:
    namespace.wait_phase(name, "Succeeded")
    log = namespace.kubectl("logs", "-n", namespace.name, f"{name}-launcher")
    ranks = re.findall(r"^rank ([0-9]+) of ([0-9]+) in (\S+)$", log, re.MULTILINE)
    assert sorted(int(rank) for rank, _, _ in ranks) == list(range(RANKS[name]))
    assert {pod for _, _, pod in ranks} == {f"{name}-worker-0", f"{name}-worker-1"}
