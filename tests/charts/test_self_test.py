"""The program of `helm test`, on an API server; the test acts as the operator."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from support.api_client import JOBS, Api, Object, wait_for

COLLECTION = JOBS.format("self-test")


@pytest.fixture(scope="module", autouse=True)
def namespace(api: Api) -> None:
    """The namespace of the jobs."""
    api.create("/api/v1/namespaces", {"metadata": {"name": "self-test"}})


def self_test(api: Api, seconds: int) -> subprocess.Popen[str]:
    """Runs the program with this timeout."""
    options = ("--namespace=self-test", "--image=trainer:1", f"--timeout-seconds={seconds}")
    return subprocess.Popen(
        [sys.executable, "-m", "horovodjob_operator.self_test", *options],
        env={**os.environ, "KUBECONFIG": str(api.kubeconfig)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def report(api: Api, phase: str, message: str) -> None:
    """Writes the status of the only job."""
    job: Object = wait_for("the job", lambda: api.get(COLLECTION)["items"])[0]
    ready = {"type": "Ready", "status": "False", "reason": "Test", "message": message}
    status: dict[str, Any] = {"phase": phase, "conditions": [{**ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    api.patch(f"{COLLECTION}/{job['metadata']['name']}/status", {"status": status})


@pytest.mark.parametrize(
    ("phase", "message"), [("Failed", "the image has no mpirun"), ("", "no operator has reconciled it")]
)
def test_another_result_is_explained_with_the_next_command(api: Api, phase: str, message: str) -> None:
    program = self_test(api, 300 if phase else 2)
    if phase:
        report(api, phase, message)
    _, explanation = program.communicate(timeout=300)
    assert program.returncode == 1
    assert message in explanation
    assert "kubectl --namespace self-test describe horovodjob self-test-" in explanation
    api.delete(COLLECTION)
