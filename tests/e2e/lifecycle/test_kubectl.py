"""kubectl wait, get -w and describe, on a job that succeeds and on one that fails."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from e2e.access import wait_for
from e2e.namespace import Namespace

# Returns for both ends.
END = "--for=jsonpath={.status.completionTime}"
WAITS = "until [ -e /tmp/go ]; do sleep 0.1; done"


@pytest.fixture
def kubectl_watch(namespace: Namespace, tmp_path: Path) -> Iterator[Path]:
    """The output of `kubectl get -w` during the test."""
    shown = tmp_path / "watch"
    command = [namespace.kubectl.program, "get", "hvj", "-n", namespace.name, "--watch", "-o", "wide"]
    with shown.open("w") as file:
        environment = {**os.environ, "KUBECONFIG": str(namespace.kubectl.kubeconfig)}
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
        try:
            yield shown
        finally:
            process.kill()
            process.wait()


def _phases(shown: Path, job: str) -> list[str]:
    """The phases in the output, each once per stay; a new job has none."""
    rows = [line.split() for line in shown.read_text().splitlines()]
    phases = [row[1] for row in rows if row[0] == job and row[1].isalpha()]
    return [phase for phase, _ in groupby(phases)]


def _table(text: str) -> list[dict[str, str]]:
    """The rows of a table, by column."""
    heading, *lines = text.splitlines()
    starts = [match.start() for match in re.finditer(r"\S+( \S+)*", heading)]
    columns = list(zip(starts, [*starts[1:], None], strict=True))
    return [{heading[a:b].strip(): line[a:b].strip() for a, b in columns} for line in lines]


def test_kubectl_waits_for_a_job_and_shows_each_phase(namespace: Namespace, kubectl_watch: Path) -> None:
    wait = ("wait", "-n", namespace.name, "--timeout=300s")
    namespace.apply(namespace.job("reads", WAITS, worker={"replicas": 2}))
    namespace.kubectl(*wait, "hvj/reads", "--for=jsonpath={.status.phase}=Running")
    namespace.release("reads-worker-0", "reads-worker-1")
    namespace.kubectl(*wait, "hvj/reads", END)
    namespace.apply(namespace.job("ends", "exit 3", runPolicy={"backoffLimit": 0}))
    namespace.kubectl(*wait, "hvj/ends", END)
    ends = ("get", "-n", namespace.name, "hvj/reads", "hvj/ends", "--output=jsonpath={.items[*].status.phase}")
    assert namespace.kubectl(*ends) == "Succeeded Failed"
    wait_for("the last line", lambda: _phases(kubectl_watch, "ends")[-1:] == ["Failed"])
    phases = _phases(kubectl_watch, "reads")
    # Queued and Starting are written only if they last.
    assert [phase for phase in phases if phase not in ("Queued", "Starting")] == ["Running", "Succeeded"]
    first, second = _table(namespace.kubectl("get", "hvjob", "-n", namespace.name, "-o", "wide"))
    shown = ("NAME", "PHASE", "WORKERS", "RESTARTS", "GPUS", "EXIT CODE", "REASON")
    assert [first[name] for name in shown] == ["ends", "Failed", "0/1", "0", "0", "3", "BackoffLimitExceeded"]
    assert [second[name] for name in shown] == ["reads", "Succeeded", "0/2", "0", "0", "0", "AllRanksSucceeded"]
    description = namespace.kubectl("describe", "hvj/ends", "-n", namespace.name)
    assert "mpirun ended with exit code 3" in description
