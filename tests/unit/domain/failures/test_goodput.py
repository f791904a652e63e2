"""What the time of a job was used for: from the reports of its attempts and the times of its status."""

import json
from typing import Any

import pytest

from horovodjob.api.constants import Phase
from horovodjob.api.status import Goodput
from horovodjob.lost_time import goodput_text, slow_rank_text
from horovodjob_operator.domain.events import events_between
from horovodjob_operator.domain.goodput import gpu_seconds
from horovodjob_operator.domain.stall_report import parse_stall
from unit.domain.fake_cluster import FakeCluster, training_job


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
    cluster = FakeCluster(training_job(worker={"replicas": 2, "gpus": 4}))
    cluster.start()
    return cluster


def fail(cluster: FakeCluster) -> None:
    cluster.end_container("cifar-launcher", 1)
    cluster.wait(10)
    cluster.reconcile()


def test_the_time_of_two_attempts_and_the_steps_that_were_done_again(cluster: FakeCluster) -> None:
    cluster.wait(1000)
    report(cluster, 800, 0, steps=800, setup=100, input=50, exchange=30)
    fail(cluster)
    assert (cluster.status.phase, cluster.status.attempt) == (Phase.RESTARTING, 2)
    found = goodput(cluster)
    assert found.seconds.model_dump(exclude_defaults=True) == {
        "steps": 800, "setup": 100, "input": 50, "exchange": 30, "starting": 20, "restart_delay": 10,
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
    assert (found.seconds.steps, found.seconds.lost_steps) == (1500, 200)
    total = sum(found.seconds.model_dump().values())
    assert total == pytest.approx(2000, abs=2)
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


def test_time_in_suspension_is_outside(cluster: FakeCluster) -> None:
    cluster.wait(100)
    report(cluster, 80, 0, steps=80)
    cluster.edit_run_policy(suspend=True)
    cluster.reconcile()
    cluster.remove_terminating_pods()
    cluster.wait(100_000)
    cluster.edit_run_policy(suspend=False)
    cluster.start()
    cluster.wait(100)
    report(cluster, 160, 80, steps=80)
    cluster.end_container("cifar-launcher", 0)
    cluster.reconcile()
    assert goodput(cluster).percent == pytest.approx(80, abs=1)


def test_a_program_that_does_not_know_its_position_loses_no_steps(cluster: FakeCluster) -> None:
    cluster.wait(100)
    report(cluster, 80, None, steps=80)
    fail(cluster)
    cluster.remove_terminating_pods()
    cluster.wait(20)
    cluster.start()
    cluster.wait(100)
    report(cluster, 90, None, steps=90)
    cluster.end_container("cifar-launcher", 0)
    cluster.reconcile()
    assert (goodput(cluster).seconds.steps, goodput(cluster).seconds.lost_steps) == (170, 0)


def test_a_new_operator_process_keeps_what_the_status_says(cluster: FakeCluster) -> None:
    cluster.wait(100)
    report(cluster, 80, 0, {"rank": 5, "pod": "cifar-worker-1", "ratio": 1.6}, steps=80)
    cluster.reconcile()
    cluster.stall_report = None
    cluster.wait(10)
    cluster.reconcile()
    assert cluster.status.training is not None
    assert cluster.status.training.slowest_rank is not None
    fail(cluster)
    assert goodput(cluster).seconds.steps == 80


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
        ({"seconds": {}, "slowestRank": {"rank": 0, "ratio": 0.5}}, "usage.slowestRank.ratio"),
        ({"seconds": {}, "slowestRank": {"rank": 0, "ratio": 2.0, "section": "x"}}, "usage.slowestRank.section"),
    ],
)
def test_a_malformed_report_is_refused_with_a_sentence(usage: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_stall(json.dumps({"attempt": 1, "stall": None, "usage": usage}).encode())
