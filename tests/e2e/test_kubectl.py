"""What users wait with and look at: kubectl itself, on a job that succeeds and on one that fails."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from e2e.access import wait_for
from e2e.space import Space

WAITS = "until [ -e /tmp/go ]; do sleep 0.1; done"


@pytest.fixture
def watched(space: Space, tmp_path: Path) -> Iterator[Path]:
    """What `kubectl get -w` prints meanwhile."""
    shown = tmp_path / "watch"
    command = [space.kubectl.program, "get", "hvj", "-n", space.name, "--watch", "-o", "wide"]
    with shown.open("w") as file:
        environment = {**os.environ, "KUBECONFIG": str(space.kubectl.kubeconfig)}
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
        try:
            yield shown
        finally:
            process.kill()
            process.wait()


def _phases(shown: Path, job: str) -> list[str]:
    """The phases that the watch has shown, each once per stay; at first a job has none."""
    rows = [line.split() for line in shown.read_text().splitlines()]
    phases = [row[1] for row in rows if row[0] == job and row[1].isalpha()]
    return [phase for phase, _ in groupby(phases)]


def _table(text: str) -> list[dict[str, str]]:
    """The rows of a table, by column."""
    heading, *lines = text.splitlines()
    starts = [match.start() for match in re.finditer(r"\S+( \S+)*", heading)]
    columns = list(zip(starts, [*starts[1:], None], strict=True))
    return [{heading[a:b].strip(): line[a:b].strip() for a, b in columns} for line in lines]


def test_kubectl_waits_for_a_job_and_shows_each_phase_of_it(space: Space, watched: Path) -> None:
    wait = ("wait", "-n", space.name, "--timeout=300s")
    space.apply(space.job("reads", WAITS, worker={"replicas": 2}))
    space.kubectl(*wait, "hvj/reads", "--for=jsonpath={.status.phase}=Running")
    space.release("reads-worker-0", "reads-worker-1")
    space.kubectl(*wait, "hvj/reads", "--for=condition=Succeeded")
    space.apply(space.job("ends", "exit 3", runPolicy={"backoffLimit": 0}))
    space.kubectl(*wait, "hvj/ends", "--for=condition=Failed")
    wait_for("the last line", lambda: _phases(watched, "ends")[-1:] == ["Failed"])
    assert _phases(watched, "reads") == ["Queued", "Starting", "Running", "Succeeded"]
    first, second = _table(space.kubectl("get", "hvjob", "-n", space.name, "-o", "wide"))
    shown = ("NAME", "PHASE", "WORKERS", "RESTARTS", "GPUS", "EXIT CODE", "REASON")
    assert [first[name] for name in shown] == ["ends", "Failed", "0/1", "0", "0", "3", "BackoffLimitExceeded"]
    assert [second[name] for name in shown] == ["reads", "Succeeded", "0/2", "0", "0", "0", "AllRanksSucceeded"]
    told = space.kubectl("describe", "hvj/ends", "-n", space.name)
    assert "mpirun ended with exit code 3" in told
