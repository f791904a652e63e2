"""A control plane and the operator's process for all tests of this folder; each test has its own namespace."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from api.client import Api
from handling.history import contradictions
from handling.plane import Kubelet, Plane, Recorder, install, make_namespace, operator_kubeconfig
from handling.player import Job, submit
from handling.process import Operator

NUMBERS = itertools.count(1)
# What the operator may say at level ERROR and above, or in plain text: nothing.
LOUD = ("ERROR", "CRITICAL", "TEXT")


@pytest.fixture(scope="session")
def plane() -> Iterator[Plane]:
    """etcd, API server and controller manager."""
    with Plane() as started:
        yield started


@pytest.fixture(scope="session")
def api(plane: Plane) -> Iterator[Api]:
    """The administrator's connection, with the resource installed and a kubelet that removes deleted pods."""
    connection = Api(plane)
    install(connection)
    kubelet = Kubelet(connection)
    kubelet.start()
    yield connection
    kubelet.end()


@pytest.fixture(scope="session")
def recorder(api: Api) -> Iterator[Recorder]:
    """Every version of every job."""
    started = Recorder(api)
    started.start()
    yield started
    started.end()


@pytest.fixture(scope="session")
def operator_access(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kubeconfig of the operator's service account."""
    return operator_kubeconfig(api, tmp_path_factory.mktemp("operator") / "kubeconfig")


@pytest.fixture(scope="session")
def process(operator_access: Path) -> Iterator[Operator]:
    """The operator that all tests share; one that ended it starts it again, or the next test does."""
    shared = Operator(operator_access, operator_access.with_name("log"))
    yield shared
    shared.kill()


@pytest.fixture
def operator(process: Operator) -> Iterator[Operator]:
    """A running operator that says nothing of errors while the test goes on."""
    if not process.runs:
        process.start()
    process.news()
    yield process
    assert [line for line in process.news() if line["level"] in LOUD] == []


@pytest.fixture
def namespace(api: Api, recorder: Recorder) -> Iterator[str]:
    """A namespace of the test's own; at its end no job in it may ever have contradicted itself."""
    name = f"test-{next(NUMBERS)}"
    make_namespace(api, name)
    yield name
    histories = [one for one in recorder.versions.values() if one and one[0]["metadata"]["namespace"] == name]
    assert [words for history in histories for words in contradictions(history)] == []
    api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def submitted(api: Api, namespace: str, operator: Operator) -> Callable[..., Job]:
    """Creates a job in the test's namespace, with the operator running."""

    def make(name: str = "train", **spec: Any) -> Job:
        return submit(api, namespace, name, **spec)

    return make
