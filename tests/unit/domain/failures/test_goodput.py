"""What the time of a job was used for: from the reports of its attempts and the times of its status."""

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horovodjob.api.constants import Phase
from horovodjob.api.status import Goodput, HorovodJobStatus
from horovodjob.lost_time import goodput_text, slow_rank_text
from horovodjob_operator.domain.events import events_between
from horovodjob_operator.domain.goodput import REPORTED, gpu_seconds
from horovodjob_operator.domain.stall_report import parse_stall
from unit.domain.fake_cluster import NOON, FakeCluster, new_cluster, phase_of, running_cluster


def report(
    cluster: FakeCluster, last: int, first: int | None, slowest: dict[str, Any] | None = None, /, **seconds: float
) -> None:
    """Rank 0 reports what its attempt has used its time for."""
    usage: dict[str, Any] = {"seconds": seconds, "steps": last}
    usage |= {"firstStep": first} if first is not None else {}
    usage |= {"slowestRank": slowest} if slowest else {}
    body = {"attempt": cluster.status.attempt, "stall": None, "usage": usage}
    cluster.stall_report = parse_stall(json.dumps(body).encode())


def goodput(cluster: FakeCluster) -> Goodput:
    assert cluster.status.training is not None
    assert cluster.status.training.goodput is not None
    return cluster.status.training.goodput


@pytest.fixture
def cluster() -> FakeCluster:
    return running_cluster(worker={"replicas": 2, "gpus": 4})


def total_seconds(cluster: FakeCluster) -> int:
    return sum(goodput(cluster).seconds.model_dump().values())


def fail(cluster: FakeCluster) -> None:
    cluster.end_container("cifar-launcher", 1)
    cluster.reconcile(after=10)


def restart(cluster: FakeCluster, seconds: int = 20) -> None:
    """The next attempt runs after this time, which begins with its delay."""
    fail(cluster)
    cluster.remove_terminating_pods()
    cluster.wait(seconds)
    cluster.start()
    assert cluster.status.phase is Phase.RUNNING


def succeed(cluster: FakeCluster) -> None:
    cluster.end_container("cifar-launcher", 0)
    cluster.reconcile()
    assert cluster.status.phase is Phase.SUCCEEDED


def test_the_time_of_two_attempts_and_the_steps_that_were_done_again(cluster: FakeCluster) -> None:
    cluster.wait(1000)
    report(cluster, 800, 0, steps=800, setup=100, input=50, exchange=30)
    fail(cluster)
    assert (cluster.status.phase, cluster.status.attempt) == (Phase.RESTARTING, 2)
    found = goodput(cluster)
    assert found.seconds.model_dump(exclude_defaults=True) == {
        "steps": 800, "setup": 100, "input": 50, "exchange": 30, "starting": 30,
    }  # fmt: skip
    assert (found.attempt.number, found.attempt.percent) == (1, 81.6)
    cluster.remove_terminating_pods()
    cluster.wait(20)
    cluster.start()
    cluster.wait(970)
    report(cluster, 1500, 600, steps=900, setup=50, stalled=10, checkpoints=5)
    cluster.end_container("cifar-launcher", 0)
    cluster.reconcile()
    found = goodput(cluster)
    assert cluster.status.phase is Phase.SUCCEEDED
    assert (found.seconds.steps, found.seconds.lost_steps, found.seconds.restart_delay) == (1500, 200, 10)
    assert (found.first_step, found.steps) == (0, 1500)
    total = total_seconds(cluster)
    assert total == 2000
    assert found.percent == pytest.approx(100 * 1500 / total, abs=0.1)
    assert (found.attempt.number, found.attempt.first_step, found.attempt.seconds.steps) == (2, 600, 900)
    assert gpu_seconds(cluster.job, cluster.status)["steps"] == 8 * 1500


def test_a_report_alone_writes_no_status(cluster: FakeCluster) -> None:
    report(cluster, 10, 0, steps=10)
    cluster.reconcile()
    before = len(cluster.statuses)
    for seconds in range(20, 400, 20):
        cluster.wait(20)
        report(cluster, seconds, 0, steps=seconds)
        cluster.reconcile()
    assert len(cluster.statuses) == before


def test_a_program_that_does_not_know_its_position_loses_no_steps(cluster: FakeCluster) -> None:
    cluster.wait(100)
    report(cluster, 80, None, steps=80)
    restart(cluster)
    cluster.wait(100)
    report(cluster, 90, None, steps=90)
    succeed(cluster)
    assert (goodput(cluster).seconds.steps, goodput(cluster).seconds.lost_steps) == (170, 0)


def test_a_new_operator_process_keeps_what_the_status_says(cluster: FakeCluster) -> None:
    cluster.wait(100)
    report(cluster, 80, 0, {"rank": 5, "pod": "cifar-worker-1", "ratio": 1.6}, steps=80)
    cluster.reconcile()
    named = cluster.status
    assert named.training is not None
    cluster.stall_report = None
    cluster.wait(10)
    cluster.edit_run_policy(backoff_limit=9)  # causes a write
    cluster.reconcile()
    assert cluster.status.training is not None
    assert cluster.status.training.slowest_rank == named.training.slowest_rank is not None
    assert events_between(cluster.job, named, cluster.status) == ()
    fail(cluster)
    assert goodput(cluster).seconds.steps == 80
    assert cluster.status.training.slowest_rank is None


def test_time_in_the_phase_queued_is_outside() -> None:
    cluster = new_cluster(scheduling={"timeoutSeconds": 60})
    cluster.wait(50)
    cluster.start()
    cluster.wait(100)
    report(cluster, 80, 0, steps=80)
    fail(cluster)
    cluster.remove_terminating_pods()
    cluster.reconcile(after=20)
    cluster.reconcile(after=60)  # no node for the launcher: 60 s of restarting, then the pods are deleted
    assert phase_of(cluster) is Phase.QUEUED
    cluster.remove_terminating_pods()
    cluster.wait(25)
    cluster.start()
    assert cluster.status.phase is Phase.RUNNING
    cluster.wait(80)
    report(cluster, 160, 80, steps=80)
    succeed(cluster)
    found = goodput(cluster)
    assert (found.queued_seconds, total_seconds(cluster)) == (75, 270)
    assert (found.seconds.steps, found.seconds.restart_delay) == (160, 10)


@pytest.mark.parametrize("ends", ["suspend", "terminate"])
def test_a_delay_that_a_user_ends_counts_until_then(cluster: FakeCluster, ends: str) -> None:
    cluster.job = cluster.job.model_copy(update={"status": cluster.status.model_copy(update={"restarts": 2})})
    cluster.wait(100)
    report(cluster, 80, 0, steps=80)
    fail(cluster)
    cluster.wait(7)
    cluster.edit_run_policy(**{ends: True})
    cluster.reconcile()
    assert (goodput(cluster).seconds.restart_delay, total_seconds(cluster)) == (7, 117)


def test_steps_of_all_earlier_attempts_are_lost_that_a_later_one_does_again(cluster: FakeCluster) -> None:
    cluster.wait(1000)
    report(cluster, 900, 0, steps=900)
    restart(cluster)
    cluster.wait(4000)
    report(cluster, 0, None, setup=3600, stalled=400)  # it completed none
    restart(cluster, 30)
    cluster.wait(300)
    report(cluster, 700, 600, steps=100, setup=200)
    restart(cluster, 60)
    cluster.wait(400)
    report(cluster, 700, 400, steps=300)  # the newest checkpoint is unusable
    succeed(cluster)
    found = goodput(cluster).seconds
    assert (found.steps, found.lost_steps, found.setup, found.stalled) == (700, 300 + 300, 3800, 400)


@pytest.mark.parametrize("operator", ["same", "new"])
def test_the_time_of_a_rank_0_that_is_silent_is_that_of_its_stall(cluster: FakeCluster, operator: str) -> None:
    cluster.edit_run_policy(progress_deadline_seconds=100)
    cluster.wait(200)
    report(cluster, 80, 0, steps=80, setup=100, stalled=20)
    cluster.edit_run_policy(backoff_limit=9)
    cluster.reconcile()
    cluster.usage = cluster.stall_report.usage if cluster.stall_report and operator == "same" else None
    since = f"{cluster.now:%Y-%m-%dT%H:%M:%SZ}"
    for seconds in (60, 20, 20):
        cluster.wait(seconds)
        stall = {"since": since, "steps": 80, "isOver": cluster.now - NOON >= timedelta(seconds=300)}
        body = {"attempt": 1, "stall": stall, "isDeputy": True}
        cluster.stall_report = parse_stall(json.dumps(body).encode())
        cluster.reconcile()
    assert cluster.status.phase is Phase.RESTARTING
    expected = {"same": {"stalled": 120}, "new": {"stalled": 100, "starting": 20}}[operator]
    assert goodput(cluster).seconds.model_dump(exclude_defaults=True) == {"steps": 80, "setup": 100, **expected}


def test_a_status_of_an_earlier_release_is_continued(cluster: FakeCluster) -> None:
    cluster.wait(1000)
    report(cluster, 900, 0, steps=900)
    fail(cluster)
    assert cluster.status.training is not None
    stored = cluster.status.model_dump(by_alias=True)
    for name in ("queuedSeconds", "firstStep", "steps"):
        del stored["training"]["goodput"][name]
    cluster.job = cluster.job.model_copy(update={"status": HorovodJobStatus.model_validate(stored)})
    cluster.remove_terminating_pods()
    cluster.wait(20)
    cluster.start()
    cluster.wait(400)
    report(cluster, 1000, 600, steps=400)
    succeed(cluster)
    assert (goodput(cluster).seconds.steps, goodput(cluster).seconds.lost_steps) == (1000, 300)


def test_another_process_as_rank_0_of_an_elastic_job_loses_nothing(cluster: FakeCluster) -> None:
    cluster.wait(1000)
    report(cluster, 900, 0, steps=900, setup=50)
    cluster.edit_run_policy(backoff_limit=9)
    cluster.reconcile()
    cluster.wait(100)
    report(cluster, 950, 0, steps=400, setup=90)  # it joined later
    cluster.edit_run_policy(backoff_limit=8)
    cluster.reconcile()
    cluster.wait(100)
    report(cluster, 1050, 0, steps=500, setup=90)
    succeed(cluster)
    assert (goodput(cluster).seconds.steps, goodput(cluster).seconds.setup) == (1000, 50)


def test_an_operator_whose_clock_is_behind_does_no_lasting_harm(cluster: FakeCluster) -> None:
    cluster.wait(1000)
    report(cluster, 900, 0, steps=900, setup=50)
    cluster.edit_run_policy(backoff_limit=9)
    cluster.reconcile()
    cluster.wait(-3600)
    report(cluster, 920, 0, steps=920, setup=50)
    cluster.edit_run_policy(backoff_limit=8)
    cluster.reconcile()
    cluster.wait(3700)
    report(cluster, 1000, 0, steps=1000, setup=50)
    succeed(cluster)
    assert goodput(cluster).seconds.steps == pytest.approx(1000, abs=2)
    assert total_seconds(cluster) == 1100


amounts = st.floats(0, 10**12) | st.floats(0, 500)
reports = st.tuples(
    st.integers(0, 2**31 - 1) | st.integers(0, 9),
    st.none() | st.integers(0, 2**31 - 1) | st.integers(0, 9),
    st.fixed_dictionaries(dict.fromkeys(REPORTED, amounts)),
)
courses = st.lists(st.tuples(st.floats(0, 500), reports | st.sampled_from(["fail", "suspend", "operator"])), max_size=8)


@settings(max_examples=40)
@given(courses)
def test_the_causes_are_the_time_of_the_job_whatever_programs_report(course: list[Any]) -> None:
    cluster = running_cluster(runPolicy={"backoffLimit": 100})
    suspended = 0.0
    for number, (seconds, event) in enumerate(course):
        cluster.wait(round(seconds))
        if event == "fail":
            cluster.stall_report = None
            restart(cluster, 400)
        elif event == "suspend":
            cluster.edit_run_policy(suspend=True)
            cluster.reconcile()
            cluster.remove_terminating_pods()
            cluster.wait(round(seconds))
            suspended += round(seconds)
            cluster.edit_run_policy(suspend=False)
            cluster.start()
        elif event == "operator":
            cluster.stall_report = None
        else:
            report(cluster, event[0], event[1], **event[2])
        cluster.edit_run_policy(backoff_limit=101 + number)
        cluster.reconcile()
        if cluster.status.training and cluster.status.training.goodput:
            passed = (cluster.now - NOON).total_seconds() - suspended
            assert total_seconds(cluster) + goodput(cluster).queued_seconds == pytest.approx(passed, abs=1)


def test_a_slow_rank_is_in_the_status_and_in_one_event_until_it_is_not_slow(cluster: FakeCluster) -> None:
    cluster.update_pod("cifar-worker-1", node="gpu-7")
    slow = {"rank": 5, "pod": "cifar-worker-1", "ratio": 1.6, "section": "input"}
    before = cluster.status
    report(cluster, 80, 0, slow, steps=80)
    cluster.reconcile()
    (event,) = events_between(cluster.job, before, cluster.status)
    assert (event.reason, event.is_warning) == ("SlowRank", True)
    assert event.note == (
        "rank 5 (cifar-worker-1, node gpu-7) needs 1.60 times as long for a step as the median of the ranks, without "
        "the exchange, most of it in its input"
    )
    named = cluster.status
    cluster.wait(60)
    report(cluster, 90, 0, slow | {"ratio": 1.7}, steps=90)
    cluster.reconcile()
    assert events_between(cluster.job, named, cluster.status) == ()
    report(cluster, 99, 0, steps=99)
    cluster.reconcile()
    assert cluster.status.training is not None
    assert cluster.status.training.slowest_rank is None


def test_sentences_name_the_causes_the_most_first() -> None:
    training = {"goodput": {"percent": 71.4, "seconds": {"steps": 714, "input": 200, "lostSteps": 86, "stalled": 0}}}
    assert goodput_text(training) == "71.4 % (input 20.0 %, lost steps 8.6 %)"
    assert (goodput_text({}), goodput_text(None), slow_rank_text({})) == (None, None, None)


@pytest.mark.parametrize(
    ("usage", "sentence"),
    [
        ({"seconds": {"steps": -1}}, "usage.seconds.steps: Input should be greater than or equal to 0"),
        ({"seconds": {"input": float("inf")}}, "usage.seconds.input"),
        ({"seconds": {"input": 1e13}}, "usage.seconds.input"),
        ({"seconds": {}, "firstStep": 0.5}, "usage.firstStep"),
        ({"seconds": {}, "slowestRank": {"rank": 0, "ratio": float("nan")}}, "usage.slowestRank.ratio"),
        ({"seconds": {}, "slowestRank": {"rank": 0, "ratio": 2.0, "section": "x"}}, "usage.slowestRank.section"),
    ],
)
def test_a_malformed_report_is_refused_with_a_sentence(usage: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_stall(json.dumps({"attempt": 1, "stall": None, "usage": usage}).encode())
