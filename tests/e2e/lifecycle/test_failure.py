"""Programs that fail: the reported errors, and the state of the next attempt. All run side by side."""

from __future__ import annotations

import pytest

from e2e.access import wait_for
from e2e.namespace import Namespace

FAILS = 'echo "attempt $HOROVODJOB_ATTEMPT begins"; echo "the last words" >&2; exit 7'
# A bar that is longer than a termination message, without an end of its line, after the error.
BAR = (
    "import sys\nprint('bad shape', file=sys.stderr, flush=True)\n"
    "sys.stdout.write(' 40%|####      | 4/10\\r' * 400)\nsys.exit(3)"
)
KILLS_ITSELF = ["python3", "-c", "import os; os.kill(os.getpid(), 9)"]


@pytest.fixture(scope="module")
def namespace(module_namespace: Namespace) -> Namespace:
    """The namespace, with all jobs in it."""
    once = {"runPolicy": {"backoffLimit": 0}}
    module_namespace.apply(
        module_namespace.job("fails", FAILS, worker={"replicas": 2}, runPolicy={"backoffLimit": 1}),
        module_namespace.job("missing", ["no-such-program"], **once),
        module_namespace.job("killed", KILLS_ITSELF, **once),
        module_namespace.job("bar", ["python3", "-c", BAR], **once),
    )
    return module_namespace


def test_the_errors_of_a_job_have_the_exit_code_and_last_log_lines_of_each_attempt(namespace: Namespace) -> None:
    status = namespace.wait_phase("fails", "Failed")
    assert (status["attempt"], status["restarts"], status["preemptions"], status["exitCode"]) == (2, 1, 0, 7)
    assert namespace.condition("fails", "Failed")["reason"] == "BackoffLimitExceeded"
    assert [error["attempt"] for error in status["errors"]] == [1, 2]
    for attempt, error in enumerate(status["errors"], start=1):
        assert (error["reason"], error["exitCode"]) == ("RankFailed", 7)
        assert (error["pod"], error["container"]) == ("fails-launcher", "launcher")
        assert error["node"] in {pod["spec"]["nodeName"] for pod in namespace.pods_ever("fails")}
        assert f"attempt {attempt} begins" in error["message"]
        assert "the last words" in error["message"]


def test_the_words_of_the_program_come_first_also_after_a_long_progress_bar(namespace: Namespace) -> None:
    status = namespace.wait_phase("bar", "Failed")
    message = namespace.condition("bar", "Failed")["message"]
    assert message.startswith("bad shape (RankFailed: mpirun ended with exit code 3; attempt 1; ")
    assert "4/10" not in status["errors"][0]["message"]
    assert "bad shape" in status["errors"][0]["message"]


def test_after_a_failure_the_launcher_keeps_its_log_and_the_workers_are_deleted(namespace: Namespace) -> None:
    namespace.wait_phase("fails", "Failed")
    wait_for("the workers to be deleted", lambda: list(namespace.pods("fails")) == ["fails-launcher"])
    log = namespace.log("fails-launcher", "launcher")
    assert "attempt 2 begins" in log  # the output of the other rank depends on its progress
    assert "attempt 1 begins" not in log, "each attempt has a launcher of its own"
    pods = [pod["metadata"]["name"] for pod in namespace.pods_ever("fails")]
    assert sorted(pods) == ["fails-launcher", "fails-launcher", "fails-worker-0", "fails-worker-1"]


@pytest.mark.parametrize(("name", "words"), [("missing", "no-such-program"), ("killed", "signal 9")])
def test_a_missing_program_and_a_killed_rank_fail_the_job(namespace: Namespace, name: str, words: str) -> None:
    status = namespace.wait_phase(name, "Failed")
    assert words in status["errors"][0]["message"]
    assert status["exitCode"] == 137 if name == "killed" else status["exitCode"] not in (0, None)
