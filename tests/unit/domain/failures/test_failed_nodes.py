"""Nodes that end attempts: the next ones avoid them, and ends that a node explains do not count."""

from dataclasses import replace
from typing import Any

import pytest

from horovodjob.api.constants import Phase
from horovodjob_operator.domain.events import events_between
from horovodjob_operator.domain.failed_nodes import avoidance_text, failed_nodes
from horovodjob_operator.domain.resources.parts.placement import avoid_nodes
from horovodjob_operator.domain.resources.worker import worker_pod
from horovodjob_operator.domain.stall_report import parse_stall
from unit.domain.fake_cluster import FakeCluster, running_cluster, training_job

XID: dict[str, tuple[str, ...]] = {"node-1": ("XIDErrors (GPU 3 has Xid 79)",)}


def started(**spec: Any) -> FakeCluster:
    """A running job with a launcher and a worker on node-0, and a worker on node-1."""
    cluster = FakeCluster(training_job(**{"runPolicy": {"progressDeadlineSeconds": 600}} | spec))
    begin(cluster)
    return cluster


def begin(cluster: FakeCluster) -> None:
    cluster.reconcile()
    cluster.schedule_pods()
    for name in cluster.pods:
        cluster.update_pod(name, node="node-1" if name.endswith("-1") else "node-0")
    cluster.start()


def stall(cluster: FakeCluster, *workers: int) -> None:
    """The attempt ends at the deadline, because the others wait for these workers."""
    blamed = [{"rank": each, "host": f"cifar-worker-{each}", "text": "is stopped"} for each in workers]
    body = {"since": "2026-11-26T14:32:10Z", "blamed": blamed, "others": "", "steps": 7, "isOver": True}
    report = parse_stall(
        repr({"attempt": cluster.status.attempt, "stall": body}).replace("'", '"').replace("True", "true").encode()
    )
    cluster.stall_report = report
    cluster.reconcile()


def next_attempt(cluster: FakeCluster) -> None:
    cluster.remove_terminating_pods()
    cluster.wait(3600)
    begin(cluster)


def reject(cluster: FakeCluster) -> None:
    cluster.update_pod("cifar-worker-1", phase="Failed", reason="UnexpectedAdmissionError", message="no healthy GPU")
    cluster.reconcile()


def fail(cluster: FakeCluster, code: int = 1, message: str = "") -> None:
    cluster.end_container("cifar-launcher", code, message=message)
    cluster.reconcile(after=60)


def test_a_worker_on_the_node_that_ended_the_attempt_is_created_again_and_prefers_another() -> None:
    cluster = started()
    others = cluster.pods["cifar-worker-0"].uid
    stall(cluster, 1)
    status = cluster.status
    assert (status.phase, status.errors[-1].failed_nodes) == (Phase.RESTARTING, ("node-1",))
    message = next(each.message for each in status.conditions if each.type == "Ready")
    assert "; attempt 2 avoids node node-1 (ProgressDeadlineExceeded in attempt 1) and starts at " in message
    assert cluster.pods["cifar-worker-1"].is_terminating
    next_attempt(cluster)
    assert cluster.status.phase is Phase.RUNNING
    assert cluster.pods["cifar-worker-0"].uid == others
    assert cluster.pods["cifar-worker-1"].attempt == 2
    cluster.reconcile()
    assert not cluster.pods["cifar-worker-1"].is_terminating, "without another node, it stays there"


@pytest.mark.parametrize("has_report", [True, False])
def test_a_worker_that_the_others_waited_for_is_replaced_on_the_only_node(has_report: bool) -> None:
    cluster = running_cluster(runPolicy={"progressDeadlineSeconds": 600})
    others = cluster.pods["cifar-worker-0"].uid
    if has_report:
        stall(cluster, 1)
    else:
        fail(cluster, 137, "horovodjob: ProgressDeadlineExceeded: no step: rank 1 on cifar-worker-1 is stopped; over")
    error = cluster.status.errors[-1]
    assert (error.reason, error.pod, error.failed_nodes) == ("ProgressDeadlineExceeded", "cifar-worker-1", ())
    assert cluster.pods["cifar-worker-1"].is_terminating
    cluster.remove_terminating_pods()
    cluster.wait(60)
    cluster.start()
    assert cluster.status.phase is Phase.RUNNING
    assert (cluster.pods["cifar-worker-0"].uid, cluster.pods["cifar-worker-1"].attempt) == (others, 2)
    cluster.reconcile()
    assert not cluster.pods["cifar-worker-1"].is_terminating


def test_the_preference_is_added_to_those_of_the_template_and_of_spot_nodes() -> None:
    template = {
        "spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}}
    }
    for job in (training_job(worker={"gpus": 0, "template": template}), training_job(spot=True)):
        before = worker_pod(job, 0, 1, "")
        pod = avoid_nodes(before, ["a", "b"])
        *others, own = pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert others == before["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert own["weight"] > others[0]["weight"]
        fields = [(each["key"], each["operator"], each["values"]) for each in own["preference"]["matchFields"]]
        assert fields == [("metadata.name", "NotIn", ["a"]), ("metadata.name", "NotIn", ["b"])]
    assert "affinity" not in avoid_nodes(worker_pod(training_job(), 0, 1, ""), [])["spec"]


def test_avoidance_can_be_turned_off() -> None:
    cluster = started(scheduling={"avoidFailedNodes": False})
    stall(cluster, 1)
    assert not cluster.pods["cifar-worker-1"].is_terminating
    assert failed_nodes(cluster.job, cluster.status.errors) == {}
    assert avoidance_text(cluster.job, cluster.status.errors) == ""


@pytest.mark.parametrize(
    ("facts", "nodes"),
    [
        ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, ("node-1",)),
        ({"is_terminating": True, "disruption": "DeletionByPodGC"}, ("node-1",)),
        ({"is_terminating": True, "disruption": "DeletionByTaintManager"}, ("node-1",)),
        ({"is_terminating": True, "disruption": "PreemptionByScheduler"}, ()),
        ({"is_terminating": True}, ()),
    ],
)
def test_a_node_is_avoided_if_it_is_lost_or_refuses_the_pod_and_not_for_a_preemption(
    facts: dict[str, Any], nodes: tuple[str, ...]
) -> None:
    cluster = started()
    cluster.update_pod("cifar-worker-1", **facts)
    cluster.reconcile()
    assert cluster.status.errors[-1].failed_nodes == nodes


@pytest.mark.parametrize(
    ("message", "nodes"),
    [
        ("CUDA_ERROR_ECC_UNCORRECTABLE\n  Process name: [[54021,1],1]\n  Exit code:    1", ("node-1",)),
        ("GPU is lost\nmpirun noticed that process rank 1 with PID 12 on node 10.0.0.3 exited", ("node-1",)),
        ("ValueError: no file\n  Process name: [[54021,1],1]\n  Exit code:    1", ()),
        ("CUDA_ERROR_ECC_UNCORRECTABLE", ()),
    ],
)
def test_the_node_of_a_rank_with_a_gpu_error_is_avoided(message: str, nodes: tuple[str, ...]) -> None:
    cluster = started()
    fail(cluster, message=message)
    assert cluster.status.errors[-1].failed_nodes == nodes


def test_all_nodes_of_a_job_are_never_avoided_for_a_stall() -> None:
    cluster = started()
    stall(cluster, 0, 1)
    assert cluster.status.errors[-1].failed_nodes == ()


def test_a_node_that_ended_three_attempts_in_a_row_is_named_in_one_event() -> None:
    cluster, notes = started(runPolicy={"backoffLimit": 9}), []
    for _ in range(4):
        before = cluster.status
        reject(cluster)
        events = events_between(cluster.job, before, cluster.status)
        notes += [each.note for each in events if each.reason == "NodeFails"]
        next_attempt(cluster)
    assert notes == [
        "node node-1 ended attempts 1 to 3 (Evicted) and no other node of the job did: look at it, and cordon it with "
        "`kubectl cordon node-1`"
    ]


def test_what_a_node_reports_is_in_the_error_which_does_not_count_against_the_limit() -> None:
    cluster = started(runPolicy={"backoffLimit": 0})
    context = cluster.context
    cluster.node_conditions = XID
    fail(cluster, message="Traceback\nRuntimeError: CUDA error")
    status = cluster.status
    assert (status.phase, status.restarts, status.preemptions) == (Phase.RESTARTING, 0, 1)
    error = status.errors[-1]
    assert error.node_conditions == ("node node-1 reports XIDErrors (GPU 3 has Xid 79)",)
    assert error.message.startswith("node node-1 reports XIDErrors (GPU 3 has Xid 79); its last lines: ")
    assert error.failed_nodes == ("node-1",)
    assert context.observed.node_conditions == {}


@pytest.mark.parametrize(("seconds", "phase"), [(0, Phase.FAILED), (3600, Phase.RESTARTING)])
def test_a_condition_that_stays_does_not_restart_a_broken_program_without_end(seconds: int, phase: Phase) -> None:
    cluster = started(runPolicy={"backoffLimit": 0})
    cluster.node_conditions = {"node-0": ("Custom",), "node-1": ("Custom",)}
    for attempt in range(1, 4):
        cluster.wait(seconds)
        fail(cluster)
        assert (cluster.status.attempt, cluster.status.restarts) == (attempt + 1, 0)
        cluster.remove_terminating_pods()
        cluster.wait(400)
        begin(cluster)
    cluster.wait(seconds)
    fail(cluster)
    assert cluster.status.phase is phase
    assert cluster.status.errors[-1].node_conditions


def test_what_other_nodes_report_does_not_excuse_a_worker_that_failed() -> None:
    cluster = started()
    cluster.node_conditions = {"node-0": ("XIDErrors",)}
    cluster.end_container("cifar-worker-1", 1, message="sshd")
    cluster.reconcile()
    assert (cluster.status.restarts, cluster.status.preemptions) == (1, 0)


def test_the_condition_of_a_stall_has_what_the_blamed_nodes_report() -> None:
    cluster = started()
    cluster.node_conditions = XID | {"node-0": ("DiskPressure",)}
    body = b'{"attempt": 1, "stall": {"since": "2026-11-26T14:32:10Z", "others": "", "steps": 1, "blamed": '
    cluster.stall_report = parse_stall(body + b'[{"rank": 1, "host": "cifar-worker-1", "text": "is stopped"}]}}')
    cluster.reconcile()
    message = next(each.message for each in cluster.status.conditions if each.type == "Progressing")
    assert message.endswith("is stopped; node node-1 reports XIDErrors (GPU 3 has Xid 79)")


TRAINER = ["python", "-m", "horovodjob_trainer", "--epochs", "x"]


@pytest.mark.parametrize(
    ("spec", "code", "phase"),
    [
        ({"command": TRAINER}, 2, Phase.FAILED),
        ({"command": ["/opt/bin/horovodjob-trainer"]}, 2, Phase.FAILED),
        ({"command": ["/usr/bin/python3.12", "-X", "dev", "-um", "horovodjob_trainer"]}, 2, Phase.FAILED),
        ({"command": ["python", "-c", "pass", "-m", "horovodjob_trainer"]}, 2, Phase.RESTARTING),
        ({"command": ["python", "train.py", "-m", "horovodjob_trainer"]}, 2, Phase.RESTARTING),
        ({"command": ["python", "-m"]}, 2, Phase.RESTARTING),
        ({"command": TRAINER}, 1, Phase.RESTARTING),
        ({"command": TRAINER, "runPolicy": {"failOnExitCodes": []}}, 2, Phase.RESTARTING),
        ({"command": TRAINER, "runPolicy": {"failOnExitCodes": [3]}}, 2, Phase.RESTARTING),
        ({"runPolicy": {"failOnExitCodes": [3, 137]}}, 137, Phase.FAILED),
    ],
)
def test_exit_codes_with_which_a_restart_is_pointless_fail_the_job(
    spec: dict[str, Any], code: int, phase: Phase
) -> None:
    cluster = started(**{"runPolicy": {}} | spec)
    cluster.node_conditions = XID
    fail(cluster, code)
    assert cluster.status.phase is phase
    if phase is Phase.FAILED:
        failed = next(each for each in cluster.status.conditions if each.type == "Failed")
        assert (failed.reason, cluster.status.exit_code) == ("RankFailed", code)
        assert ("failOnExitCodes" in failed.message) is ("runPolicy" in spec)


def test_an_exit_code_of_a_worker_is_not_that_of_the_program() -> None:
    cluster = started(runPolicy={"failOnExitCodes": [3]})
    cluster.end_container("cifar-worker-1", 3)
    cluster.reconcile()
    assert cluster.status.phase is Phase.RESTARTING


def test_a_lost_worker_of_an_elastic_job_is_replaced_elsewhere() -> None:
    cluster = started(elastic={"minReplicas": 1, "maxReplicas": 2})
    cluster.pods["cifar-worker-1"] = replace(
        cluster.pods["cifar-worker-1"], phase="Failed", reason="UnexpectedAdmissionError"
    )
    cluster.reconcile()
    assert set(failed_nodes(cluster.job, cluster.status.errors)) == {"node-1"}
