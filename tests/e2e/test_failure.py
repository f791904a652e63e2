"""A program that fails, and what is left of a job at its end. All jobs are applied together."""

from __future__ import annotations

from datetime import datetime

import pytest

from e2e.access import wait_for
from e2e.space import Space

FAILS = 'echo "attempt $HOROVODJOB_ATTEMPT begins"; echo "the last words" >&2; exit 7'
DEADLINE_SECONDS = 25
SECOND_TIME = '[ "$HOROVODJOB_ATTEMPT" = 2 ] && echo made it || exit 3'


@pytest.fixture(scope="module")
def space(module_space: Space) -> Space:
    """A namespace with all the jobs in it."""
    policy = {"backoffLimit": 0}
    module_space.apply(
        module_space.job("fails", FAILS, worker={"replicas": 2}, runPolicy={"backoffLimit": 1}),
        module_space.job("recovers", SECOND_TIME),
        module_space.job("all", "true", runPolicy={**policy, "cleanPodPolicy": "All"}),
        module_space.job("none", "true", runPolicy={**policy, "cleanPodPolicy": "None"}),
        module_space.job("missing", ["no-such-program"], runPolicy=policy),
        module_space.job("killed", ["python3", "-c", "import os; os.kill(os.getpid(), 9)"], runPolicy=policy),
        module_space.job("overdue", "sleep 600", runPolicy={"activeDeadlineSeconds": DEADLINE_SECONDS}),
        module_space.job("deaf", "trap '' TERM; sleep 600", runPolicy={"activeDeadlineSeconds": DEADLINE_SECONDS}),
    )
    return module_space


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_a_job_whose_program_fails_is_restarted_after_a_delay_and_fails_in_the_end(space: Space) -> None:
    status = space.wait_phase("fails", "Restarting", seconds=90)
    assert (status["attempt"], status["restarts"]) == (2, 1)
    status = space.wait_phase("fails", "Failed", seconds=90)
    assert (status["attempt"], status["restarts"], status["preemptions"]) == (2, 1, 0)
    assert status["exitCode"] == 7
    assert status["executionState"] == "failed"
    assert space.condition("fails", "Failed")["reason"] == "BackoffLimitExceeded"
    assert [error["attempt"] for error in status["errors"]] == [1, 2]
    launchers = [pod for pod in space.pods_ever("fails") if pod["metadata"]["name"] == "fails-launcher"]
    assert len(launchers) == 2
    second = max(_moment(pod["metadata"]["creationTimestamp"]) for pod in launchers)
    assert (second - _moment(status["errors"][0]["time"])).total_seconds() >= 9


def test_an_error_has_the_programs_exit_code_and_its_last_words(space: Space) -> None:
    status = space.wait_phase("fails", "Failed", seconds=90)
    for attempt, error in enumerate(status["errors"], start=1):
        assert error["exitCode"] == 7
        assert error["reason"] == "RankFailed"
        assert (error["pod"], error["container"]) == ("fails-launcher", "launcher")
        assert error["node"]
        assert f"attempt {attempt} begins" in error["message"]
        assert "the last words" in error["message"]


def test_a_failure_leaves_the_launcher_with_its_log_and_no_worker(space: Space) -> None:
    space.wait_phase("fails", "Failed", seconds=90)
    wait_for("the workers are gone", lambda: list(space.pods("fails")) == ["fails-launcher"])
    assert "attempt 2 begins" in space.log("fails-launcher", "launcher")


def test_the_workers_of_a_failed_attempt_serve_the_next_one(space: Space) -> None:
    space.wait_phase("fails", "Failed", seconds=90)
    workers = [pod["metadata"]["name"] for pod in space.pods_ever("fails") if "worker" in pod["metadata"]["name"]]
    assert sorted(workers) == ["fails-worker-0", "fails-worker-1"]


def test_each_restart_is_an_event_of_its_own(space: Space) -> None:
    space.wait_phase("fails", "Failed", seconds=90)
    wait_for("the last event", lambda: "Failed" in space.events("fails"))
    events = space.events("fails")
    assert [events.count(reason) for reason in ("Created", "Started", "Restarting", "Failed")] == [1, 2, 1, 1]


def test_a_program_that_works_the_second_time_makes_a_success(space: Space) -> None:
    status = space.wait_phase("recovers", "Succeeded", seconds=90)
    assert (status["attempt"], status["restarts"], status["exitCode"]) == (2, 1, 0)
    assert space.output("recovers") == ["made it"]


def test_clean_pod_policy_all_leaves_no_pod(space: Space) -> None:
    space.wait_phase("all", "Succeeded", seconds=90)
    wait_for("no pods", lambda: not space.pods("all"))


def test_clean_pod_policy_none_leaves_every_pod(space: Space) -> None:
    space.wait_phase("none", "Succeeded", seconds=90)
    space.wait_phase("fails", "Failed", seconds=90)
    pods = space.pods("none")
    assert sorted(pods) == ["none-launcher", "none-worker-0"]
    assert pods["none-worker-0"]["status"]["phase"] == "Running"
    assert "deletionTimestamp" not in pods["none-worker-0"]["metadata"]


def test_a_program_that_is_not_in_the_image_is_named(space: Space) -> None:
    status = space.wait_phase("missing", "Failed", seconds=90)
    assert "no-such-program" in status["errors"][0]["message"]
    assert status["exitCode"] not in (0, None)


def test_a_rank_that_is_killed_fails_the_job(space: Space) -> None:
    status = space.wait_phase("killed", "Failed", seconds=90)
    assert status["exitCode"] == 137
    assert "signal 9" in status["errors"][0]["message"]


@pytest.mark.parametrize("name", ["overdue", "deaf"])
def test_a_job_that_has_had_its_time_ends_and_keeps_its_log(space: Space, name: str) -> None:
    status = space.wait_phase(name, "Failed", seconds=120)
    assert "Terminating" in space.phases(name)
    assert space.condition(name, "Failed")["reason"] == "DeadlineExceeded"
    begin, end = (_moment(status[field]) for field in ("startTime", "completionTime"))
    assert DEADLINE_SECONDS <= (end - begin).total_seconds() <= DEADLINE_SECONDS + 45
    wait_for("the workers are gone", lambda: list(space.pods(name)) == [f"{name}-launcher"])
    assert "mpirun starts 1 ranks" in space.log(f"{name}-launcher", "launcher")
