"""A real API server, without nodes and operator, and `hvj` as a user runs it."""

import contextlib
import io
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from api.client import JOBS, Api, Object, install_definition, job
from cluster.apiserver import ControlPlane
from horovodjob_cli.__main__ import main

NUMBERS = itertools.count(1)


class OneControlPlane(LoadFileScheduling):  # type: ignore[misc]
    """Gives the files of this folder to one worker, so that they cost one control plane; each other file to any."""

    def _split_scope(self, nodeid: str) -> str:
        folder, _, _ = nodeid.partition("::")[0].rpartition("/")
        return folder if folder == "tests/cli" else str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> OneControlPlane | None:
    """The scheduler of `--dist loadfile`."""
    return OneControlPlane(config, log) if config.getoption("dist") == "loadfile" else None


@dataclass(frozen=True)
class Result:
    """What a command line printed, and its exit code."""

    code: int
    stdout: str
    stderr: str

    @property
    def data(self) -> Any:
        """What it printed, as data: JSON is YAML."""
        return yaml.safe_load(self.stdout)


Hvj = Callable[..., Result]


def run(*arguments: str, stdin: str = "", program: str = "hvj") -> Result:
    """Run a command line in this process, without a terminal."""
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    before = sys.argv, sys.stdin
    sys.argv, sys.stdin = [program, *arguments], io.StringIO(stdin)
    try:
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr), pytest.raises(SystemExit) as end:
            main()
    finally:
        sys.argv, sys.stdin = before
    printed = [each.buffer.getvalue().decode() for each in (stdout, stderr)]  # type: ignore[attr-defined]
    return Result(int(end.value.code or 0), *printed)


@pytest.fixture(scope="session")
def api() -> Iterator[Api]:
    """The administrator's connection to an API server with the CRD, whose controllers delete what has to go."""
    with ControlPlane(controllers=True) as plane:
        connection = Api(plane)
        install_definition(connection)
        yield connection


@pytest.fixture
def workspace(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A namespace of the test's own, which the kubeconfig names, so that `hvj` needs no -w."""
    name = f"test-{next(NUMBERS)}"
    api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    kubeconfig = yaml.safe_load(api.kubeconfig.read_text())
    kubeconfig["contexts"][0]["context"]["namespace"] = name
    path = api.kubeconfig.with_name(name)
    path.write_text(yaml.safe_dump(kubeconfig))
    monkeypatch.setenv("KUBECONFIG", str(path))
    yield name
    api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def hvj(workspace: str) -> Hvj:
    """Runs `hvj` in the test's namespace."""
    return run


class Cluster:
    """What the operator and the kubelet would do in the test's namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.jobs = JOBS.format(namespace)

    def job(self, name: str = "train", **spec: Any) -> Object:
        """A job as a user creates it with kubectl."""
        return self.api.create(self.jobs, job(name, **spec))

    def report(self, name: str, **status: Any) -> Object:
        """Writes a job's status as the operator does."""
        return self.api.patch(f"{self.jobs}/{name}/status", {"status": {"observedGeneration": 1, **status}})

    def fail(self, name: str, code: int | None, **status: Any) -> Object:
        """Ends a job with an exit code."""
        ended = {"startTime": TIME, "completionTime": TIME, "phase": "Failed", "executionState": "failed"}
        return self.report(name, **ended, **({} if code is None else {"exitCode": code}), **status)

    def succeed(self, name: str) -> Object:
        """Ends a job with success."""
        ended = {"startTime": TIME, "completionTime": TIME, "phase": "Succeeded", "executionState": "succeeded"}
        return self.report(name, **ended, exitCode=0)
