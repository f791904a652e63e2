"""The preparation, which runs in every pod before any rank. All jobs of this file run side by side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.namespace import HELD, Namespace, volume

TWO = {"replicas": 2}
# The first attempt fails, so that the workers of the second one are prepared already.
RANK = 'echo "$HOSTNAME $(cat /tmp/prepared)"; [ "$HOROVODJOB_ATTEMPT" = 2 ]'
PREPARE = "echo words; echo trouble >&2; echo once >>/tmp/prepared; sleep 3600 &"


@pytest.fixture(scope="module")
def share(shared_directory: Callable[[str], Path]) -> Path:
    return shared_directory("preparation")


@pytest.fixture(scope="module")
def namespace(module_namespace: Namespace, share: Path) -> Namespace:
    """The namespace, with all jobs in it."""
    volumes, mounts = volume(module_namespace, share)
    module_namespace.apply(
        module_namespace.job(
            "prepared",
            RANK,
            worker=TWO,
            preparation={"command": PREPARE},
            volumes=volumes,
            volumeMounts=mounts,
            logs={"pathPrefix": "/data"},
        ),
        module_namespace.job(
            "replaced",
            '[ "$HOROVODJOB_ATTEMPT" = 2 ] || exec sleep 3600; ' + RANK,
            worker=TWO,
            preparation={"command": 'echo "$HOROVODJOB_ATTEMPT" >>/tmp/prepared'},
        ),
        module_namespace.job(
            "broken",
            "true",
            worker=TWO,
            preparation={"command": 'echo "no such data set" >&2; exit 3'},
            runPolicy={"backoffLimit": 0},
        ),
        module_namespace.job(
            "slow",
            "true",
            preparation={"command": "echo waits; sleep 3600", "timeoutSeconds": 2},
            runPolicy={"backoffLimit": 0},
        ),
        module_namespace.job("held", "true", worker=TWO, preparation={"command": HELD}),
    )
    return module_namespace


def test_ranks_start_after_the_preparation_of_every_worker(namespace: Namespace) -> None:
    message = namespace.wait_reason("held", "PreparationRunning")["message"]
    assert message == "all pods have a node; 2 workers not prepared yet"
    wait = ("wait", "-n", namespace.name, "--timeout=15m", "pod/held-worker-0")
    namespace.kubectl(*wait, "pod/held-worker-1", "--for=jsonpath={.status.phase}=Running")
    namespace.release("held-worker-0")
    namespace.kubectl(*wait, "--for=condition=Ready")
    assert namespace.status("held")["phase"] == "Starting"
    namespace.release("held-worker-1")
    namespace.wait_phase("held", "Succeeded")


def test_only_the_replacement_of_a_lost_worker_is_prepared_again(namespace: Namespace) -> None:
    namespace.wait_phase("replaced", "Running")
    namespace.delete_pod("replaced-worker-1", 0)
    assert namespace.wait_phase("replaced", "Succeeded")["attempt"] == 2
    assert sorted(namespace.output("replaced")) == ["replaced-worker-0 1", "replaced-worker-1 2"]


def test_a_worker_is_prepared_once_and_its_output_is_in_separate_files(namespace: Namespace, share: Path) -> None:
    status = namespace.wait_phase("prepared", "Succeeded")
    assert (status["attempt"], status["restarts"], status["exitCode"]) == (2, 1, 0)
    assert sorted(namespace.output("prepared")) == ["prepared-worker-0 once", "prepared-worker-1 once"]
    logs = share / status["outputPathSegment"] / "stdouterr"
    for pod in ("prepared-worker-0", "prepared-worker-1"):
        for stream, words in (("stdout", "words"), ("stderr", "trouble")):
            header, line = (logs / f"{stream}-job_prep-{pod}.txt").read_text().splitlines()
            assert header.startswith("--- attempt 1, ")
            assert line == words
    assert "words" not in (logs / "stdout.txt").read_text()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("broken", "the preparation ended with exit code 3: no such data set"),
        ("slow", "the preparation did not end within 2 s: waits"),
    ],
)
def test_a_failed_preparation_fails_the_attempt_with_node_and_cause(
    namespace: Namespace, name: str, words: str
) -> None:
    status = namespace.wait_phase(name, "Failed")
    error = status["errors"][-1]
    assert (error["reason"], error["container"]) == ("PreparationFailed", "worker")
    assert error["node"]
    assert error["message"].startswith("worker ")
    assert error["message"].endswith(f"on node {error['node']}: {words}")
    assert f"PreparationFailed: {error['message']}" in namespace.condition(name, "Failed")["message"]
