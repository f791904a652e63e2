"""Jobs that wait for room in ResourceQuotas: all pods of a job or none, first come, first served, no endless wait."""

from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from horovodjob_operator.domain.resource_quota import (
    Claim,
    PodUsage,
    WaitingJob,
    decide,
    decide_blindly,
    pod_usage,
    quota_from_raw,
)
from unit.domain.fake_cluster import NOON

POD = PodUsage({"pods": Fraction(1)})


def quota(hard: dict[str, str], used: dict[str, str] | None = None, name: str = "few", **spec: Any) -> Any:
    status = {"hard": hard, "used": used or {}}
    return quota_from_raw({"metadata": {"name": name}, "spec": {"hard": hard} | spec, "status": status})


def job(name: str, pods: int, *, usage: PodUsage = POD, minutes: int = 0, turn: int = 10) -> WaitingJob:
    """A job that was created, and has waited, since some minutes after noon."""
    since = NOON + timedelta(minutes=minutes)
    return WaitingJob(("team", name), since, name, since, timedelta(minutes=turn), ((usage, pods),))


def started(*jobs: WaitingJob, quotas: list[Any], minutes: float = 1, **others: Any) -> list[str]:
    """Which of the jobs can start, some minutes after noon."""
    claims: dict[str, list[Claim]] = {"starting": [], "running": [], **others}
    decisions = decide(quotas, claims["starting"], claims["running"], jobs, NOON + timedelta(minutes=minutes))
    return sorted(key[1] for key, decision in decisions.items() if decision.may_start)


def message(*jobs: WaitingJob, quotas: list[Any], running: list[Claim] | None = None) -> str:
    """Why the last of the jobs waits."""
    return decide(quotas, [], running or [], jobs, NOON)[jobs[-1].key].message


def test_jobs_start_in_the_order_in_which_they_came_as_far_as_all_their_pods_fit() -> None:
    jobs = [job("c", 9, minutes=3), job("a", 9, minutes=1), job("b", 9, minutes=2)]
    assert started(*jobs, quotas=[quota({"pods": "10"})]) == ["a"]
    assert started(*jobs, quotas=[quota({"pods": "20"})]) == ["a", "b"]
    assert started(*jobs, quotas=[quota({"pods": "10"}, {"pods": "2"})]) == []
    assert started(*jobs, quotas=[]) == ["a", "b", "c"]


def test_the_pods_that_other_jobs_have_still_to_create_count() -> None:
    creating: Claim = ((POD, 5),)
    assert started(job("a", 9), quotas=[quota({"pods": "13"})], starting=[creating]) == []
    assert started(job("a", 9), quotas=[quota({"pods": "14"})], starting=[creating]) == ["a"]


def test_a_job_that_can_never_fit_says_so_and_blocks_nobody() -> None:
    jobs = [job("large", 11), job("small", 2, minutes=1)]
    assert started(*jobs, quotas=[quota({"pods": "10"})]) == ["small"]
    assert message(jobs[0], quotas=[quota({"pods": "10"})]) == (
        "exceeded quota: few, needed for all pods of the job: pods=11, limited: pods=10; the job can never start with "
        "this quota: make it smaller, or have the quota raised"
    )


def test_a_job_that_pods_of_others_than_jobs_keep_out_blocks_nobody() -> None:
    jobs = [job("large", 9), job("small", 2, minutes=1)]
    assert started(*jobs, quotas=[quota({"pods": "10"}, {"pods": "5"})]) == ["small"]


def test_a_large_job_and_small_ones_take_turns_that_grow() -> None:
    jobs = [job("large", 9), job("small", 2, minutes=1)]
    quotas: list[Any] = [quota({"pods": "10"}, {"pods": "5"})]
    running: list[Claim] = [((POD, 5),)]
    turns = {5: [], 15: ["small"], 25: [], 39: [], 41: ["small"], 59: ["small"], 61: [], 99: [], 101: ["small"]}
    assert {at: started(*jobs, quotas=quotas, minutes=at, running=running) for at in turns} == turns
    assert message(*jobs, quotas=quotas, running=running).endswith("limited: pods=10; jobs that came earlier are first")


def test_the_message_of_a_waiting_job_stays_when_another_one_becomes_the_first() -> None:
    jobs = [job("a", 9), job("b", 9, minutes=1), job("c", 9, minutes=2)]
    quotas: list[Any] = [quota({"pods": "10"}, {"pods": "9"})]
    running: list[Claim] = [((POD, 9),)]
    assert message(*jobs, quotas=quotas, running=running) == message(*jobs[1:], quotas=quotas, running=running)


def growing(name: str, workers: int, minutes: int = 0) -> WaitingJob:
    return replace(job(name, workers, minutes=minutes), is_growing=True)


def granted(*jobs: WaitingJob, quotas: list[Any], running: list[Claim] | None = None) -> dict[str, int | None]:
    decisions = decide(quotas, [], running or [], jobs, NOON + timedelta(minutes=5))
    return {key[1]: decision.workers for key, decision in decisions.items()}


def test_an_elastic_job_gets_as_many_workers_as_fit_when_jobs_that_wait_have_their_room() -> None:
    jobs = [growing("old", 5), job("new", 5, minutes=2)]
    assert granted(*jobs, quotas=[quota({"pods": "10"}, {"pods": "3"})]) == {"old": 2, "new": None}
    assert granted(*jobs, quotas=[quota({"pods": "20"}, {"pods": "3"})]) == {"old": 5, "new": None}
    waiting = [growing("old", 5), job("new", 9, minutes=2)]
    assert granted(*waiting, quotas=[quota({"pods": "10"}, {"pods": "3"})], running=[[(POD, 3)]])["old"] == 0
    impossible = [growing("old", 5), job("large", 11, minutes=2)]
    assert granted(*impossible, quotas=[quota({"pods": "10"}, {"pods": "3"})])["old"] == 5


def test_two_elastic_jobs_share_what_is_left_and_a_full_quota_is_named() -> None:
    jobs = [growing("a", 2), growing("b", 5, minutes=1)]
    quotas = [quota({"pods": "10"}, {"pods": "6"})]
    assert granted(*jobs, quotas=quotas) == {"a": 2, "b": 2}
    sentence = "exceeded quota: few, needed for another worker: pods=1, limited: pods=10"
    assert message(*jobs, quotas=quotas) == sentence


def test_a_job_keeps_room_only_in_the_quotas_that_it_needs() -> None:
    high, low = PodUsage(POD.amounts, priority_class="high"), PodUsage(POD.amounts, priority_class="low")

    def of_class(name: str, used: str) -> Any:
        selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": [name]}]}
        return quota({"pods": "10"}, {"pods": used}, name=name, scopeSelector=selector)

    jobs = [job("large", 9, usage=high), job("small", 2, usage=low, minutes=1)]
    quotas = [of_class("high", "5"), of_class("low", "0")]
    assert started(*jobs, quotas=quotas, running=[((high, 5),)]) == ["small"]


def test_each_of_several_quotas_must_have_room() -> None:
    gpu = PodUsage({"pods": Fraction(1), "requests.nvidia.com/gpu": Fraction(4)})
    pods, gpus = quota({"pods": "10"}, name="pods"), quota({"requests.nvidia.com/gpu": "6"}, name="gpus")
    assert started(job("a", 2, usage=gpu), quotas=[pods, gpus]) == []
    assert "exceeded quota: gpus" in message(job("a", 2, usage=gpu), quotas=[pods, gpus])
    assert started(job("a", 1, usage=gpu), quotas=[pods, gpus]) == ["a"]


def test_a_quota_that_its_controller_has_not_counted_has_no_room() -> None:
    new = quota_from_raw({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "10"}}})
    assert started(job("a", 2), quotas=[new]) == []


@pytest.mark.parametrize(
    ("scope", "counts"),
    [
        ({"scopes": ["BestEffort"]}, False),
        ({"scopes": ["NotBestEffort"]}, True),
        ({"scopes": ["Terminating"]}, False),
        ({"scopes": ["NotTerminating"]}, True),
        ({"scopes": ["CrossNamespacePodAffinity"]}, False),
        ({"scopes": ["NotTerminating", "BestEffort"]}, False),
        ({"scopes": ["VolumeAttributesClass"]}, False),
        ({"scopes": ["PriorityClass"]}, True),
        ({"operator": "In", "values": ["high"]}, True),
        ({"operator": "In", "values": ["low"]}, False),
        ({"operator": "NotIn", "values": ["high"]}, False),
        ({"operator": "NotIn", "values": ["low"]}, True),
        ({"operator": "Exists"}, True),
        ({"operator": "DoesNotExist"}, False),
    ],
)
def test_a_quota_with_scopes_counts_the_pods_in_all_of_them(scope: dict[str, Any], counts: bool) -> None:
    spec = (
        scope
        if "scopes" in scope
        else {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass"} | scope]}}
    )
    container = {"name": "worker", "resources": {"requests": {"cpu": "100m"}}}
    usage = pod_usage({"spec": {"containers": [container], "priorityClassName": "high"}})
    assert started(job("a", 2, usage=usage), quotas=[quota({"pods": "1"}, **spec)]) == ([] if counts else ["a"])


def test_a_pod_counts_its_requests_and_limits_with_sidecars_and_overhead() -> None:
    worker = {"resources": {"limits": {"cpu": "2", "nvidia.com/gpu": 4}, "requests": {"memory": "1Gi"}}}
    sidecar = {"restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}}}
    spec = {"containers": [worker], "initContainers": [sidecar], "overhead": {"cpu": "1"}}
    gibibyte = Fraction(2**30)
    assert pod_usage({"spec": spec}).amounts == {
        "pods": 1,
        "count/pods": 1,
        "cpu": Fraction("3.5"),
        "requests.cpu": Fraction("3.5"),
        "memory": 2 * gibibyte,
        "requests.memory": 2 * gibibyte,
        "requests.nvidia.com/gpu": 4,
        "limits.cpu": 3,
        "limits.memory": gibibyte,
        "limits.nvidia.com/gpu": 4,
    }


def test_without_the_right_to_read_quotas_one_job_at_a_time_may_try() -> None:
    jobs = [job("b", 2, minutes=1), job("a", 9), job("c", 2, minutes=2)]

    def trying(minutes: int, *, is_busy: bool = False) -> list[str]:
        decisions = decide_blindly(jobs, NOON + timedelta(minutes=minutes), is_busy=is_busy)
        return [key[1] for key, decision in decisions.items() if decision.may_start]

    assert (trying(5), trying(5, is_busy=True)) == (["a"], [])
    assert (trying(10), trying(11)) == (["b"], ["c"])
    assert sorted(trying(minutes) for minutes in (12, 13, 14)) == [["a"], ["b"], ["c"]]
