"""A job's turns, one fact a test: worlds in, statuses out."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from domain.fake_cluster import NOON, World, a_job
from horovodjob.api.constants import ConditionType, Phase, Reason, Role
from horovodjob_operator.domain.checks.table import released_until
from horovodjob_operator.domain.events import events_between
from horovodjob_operator.domain.observed import End, EventReason, Pod, Waiting, Warned, owned_pod
from horovodjob_operator.domain.plan import plan_for
from horovodjob_operator.domain.status import next_status, significant


def phase_of(world: World) -> Phase | None:
    return world.status.phase


@pytest.fixture
def running() -> World:
    world = World(a_job())
    world.launch()
    assert phase_of(world) is Phase.RUNNING
    return world


def phases(world: World) -> list[Phase | None]:
    seen: list[Phase | None] = []
    for status in world.statuses:
        if not seen or seen[-1] is not status.phase:
            seen.append(status.phase)
    return seen


def fail_once(world: World) -> None:
    world.end("cifar-launcher", 3)
    world.wait(3)
    world.look()


def test_a_good_job_goes_through_four_phases(running: World) -> None:
    running.end("cifar-launcher", 0)
    running.look()
    assert phases(running) == [Phase.QUEUED, Phase.STARTING, Phase.RUNNING, Phase.SUCCEEDED]
    assert running.status.exit_code == 0


def test_the_launcher_learns_its_hosts_when_every_worker_has_an_address() -> None:
    world = World(a_job(worker={"replicas": 2, "gpus": 0, "slots": 3}))
    world.look()
    world.change("cifar-worker-1", node="n", address="10.0.0.9")
    world.look()
    assert world.pods["cifar-launcher"].hosts == ""
    world.change("cifar-worker-0", node="n", address="10.0.0.10")
    world.look()
    assert world.pods["cifar-launcher"].hosts == "10.0.0.10 slots=3\n10.0.0.9 slots=3\n"


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_launcher_that_hosts_ranks_is_replica_0(replicas: int) -> None:
    world = World(a_job(worker={"replicas": replicas, "gpus": 0}, launcher={"asWorker": True}))
    world.look()
    workers = [f"cifar-worker-{index}" for index in range(1, replicas)]
    assert set(world.pods) == {"cifar-launcher", *workers}
    world.change("cifar-launcher", node="n", address="10.0.0.9")
    for name in workers:
        assert world.pods["cifar-launcher"].hosts == ""
        world.change(name, node="n", address=f"10.0.1.{name[-1]}", ready=True)
    world.look()
    addresses = ["10.0.0.9", *(f"10.0.1.{index}" for index in range(1, replicas))]
    assert world.pods["cifar-launcher"].hosts == "".join(f"{address} slots=1\n" for address in addresses)
    world.change("cifar-launcher", ready=True)
    world.look()
    assert (phase_of(world), world.status.replicas) == (Phase.RUNNING, replicas)
    assert world.status.workers_ready == f"{replicas}/{replicas}"


def test_workers_go_and_the_launcher_stays_when_the_job_has_succeeded(running: World) -> None:
    running.end("cifar-launcher", 0)
    running.look()
    running.vanish()
    assert set(running.pods) == {"cifar-launcher"}


@pytest.mark.parametrize(("policy", "left"), [("All", 0), ("None", 3)])
def test_clean_pod_policy_says_what_stays(policy: str, left: int) -> None:
    world = World(a_job(runPolicy={"cleanPodPolicy": policy}))
    world.launch()
    world.end("cifar-launcher", 0)
    world.look()
    world.vanish()
    assert len(world.pods) == left


def test_a_finished_job_stays_finished_after_its_pods_are_gone(running: World) -> None:
    running.end("cifar-launcher", 0)
    running.look()
    final = running.status
    running.pods.clear()
    running.wait(9999)
    running.look()
    assert running.status == final


def test_a_finished_job_has_seen_a_change_of_its_spec(running: World) -> None:
    running.end("cifar-launcher", 0)
    running.look()
    final = running.status
    running.edit_policy(ttl_seconds_after_finished=3600)
    running.look()
    assert running.status.observed_generation == final.observed_generation + 1 == running.job.metadata.generation
    assert running.status.model_copy(update={"observed_generation": final.observed_generation}) == final


def test_a_failed_rank_restarts_the_job_after_ten_seconds(running: World) -> None:
    fail_once(running)
    assert (running.status.phase, running.status.attempt, running.status.restarts) == (Phase.RESTARTING, 2, 1)
    running.vanish()
    running.wait(9)
    running.look()
    assert "cifar-launcher" not in running.pods
    running.wait(2)
    running.look()
    assert running.pods["cifar-launcher"].attempt == 2


def test_a_restart_keeps_healthy_workers_and_tells_the_new_launcher_its_hosts_at_once(running: World) -> None:
    workers = {name: pod.uid for name, pod in running.pods.items() if "worker" in name}
    fail_once(running)
    running.vanish()
    running.wait(11)
    running.look()
    assert {name: pod.uid for name, pod in running.pods.items() if "worker" in name} == workers
    assert running.pods["cifar-launcher"].hosts.count("slots=1") == 2


def test_the_job_fails_when_its_restarts_are_used_up() -> None:
    world = World(a_job(runPolicy={"backoffLimit": 1}))
    world.launch()
    fail_once(world)
    world.vanish()
    world.wait(30)
    world.launch()
    fail_once(world)
    assert phase_of(world) is Phase.FAILED
    assert world.status.exit_code == 3
    assert [error.attempt for error in world.status.errors] == [1, 2]
    failed = world.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert failed.reason == Reason.BACKOFF_LIMIT_EXCEEDED


def test_a_deleted_worker_is_replaced_and_does_not_use_up_a_restart(running: World) -> None:
    kept = running.pods["cifar-worker-0"].uid
    running.change("cifar-worker-1", deleting=True)
    running.look()
    assert (running.status.restarts, running.status.preemptions) == (0, 1)
    assert running.status.errors[-1].reason == Reason.WORKER_LOST
    running.vanish()
    running.wait(11)
    running.launch()
    assert phase_of(running) is Phase.RUNNING
    assert running.pods["cifar-worker-0"].uid == kept


def test_a_worker_deleted_before_the_hosts_are_published_is_simply_made_again() -> None:
    world = World(a_job())
    world.look()
    del world.pods["cifar-worker-1"]
    world.look()
    assert "cifar-worker-1" in world.pods
    assert world.status.attempt == 1


def test_the_worker_that_ran_out_of_memory_is_named_even_if_the_launcher_fails_first(running: World) -> None:
    running.end("cifar-launcher", 137)
    running.look()
    running.wait(9)
    running.look()
    assert phase_of(running) is Phase.RUNNING
    running.end("cifar-worker-1", 137, "OOMKilled")
    running.look()
    error = running.status.errors[-1]
    assert (error.reason, error.pod, error.exit_code) == (Reason.WORKER_OUT_OF_MEMORY, "cifar-worker-1", 137)
    assert running.status.restarts == 1


@pytest.mark.parametrize(
    ("pod", "reason", "said", "happened"),
    [
        ("cifar-worker-1", "OOMKilled", "step 7", "worker 1 was killed: its memory limit is reached"),
        (
            "cifar-worker-1",
            "Error",
            "step 7",
            "worker 1 was lost: its container ended with exit code 137, killed by signal 9",
        ),
        ("cifar-launcher", "OOMKilled", "step 7", "the launcher was killed: its memory limit is reached"),
        ("cifar-launcher", "Error", '{"loss": 1}', ""),
        ("cifar-launcher", "Error", '{"reason": "Evicted", "message": "not by this one"}', ""),
        ("cifar-launcher", "Error", "", "mpirun ended with exit code 137, killed by signal 9"),
        ("cifar-worker-1", "OOMKilled", "x" * 3000, "worker 1 was killed: its memory limit is reached"),
    ],
    ids=["memory", "killed", "launcher", "logs in JSON", "feigned", "silent", "long"],
)
def test_an_error_says_what_happened_and_what_the_container_said_at_last(
    running: World, pod: str, reason: str, said: str, happened: str
) -> None:
    running.end(pod, 137, reason, said)
    running.wait(11)
    running.look()
    error = running.status.errors[-1]
    message = f"{happened}; its last lines: {said}" if happened and said else happened or said
    assert (error.pod, error.exit_code, error.message) == (pod, 137, message[:2048])


def test_an_evicted_worker_counts_as_a_preemption(running: World) -> None:
    words = "The node was low on resource: memory."
    running.change("cifar-worker-0", phase="Failed", reason="Evicted", disruption="TerminationByKubelet", message=words)
    running.look()
    assert running.status.errors[-1].reason == Reason.EVICTED
    assert (running.status.preemptions, running.status.restarts) == (1, 0)


@pytest.mark.parametrize(
    ("pod", "reason", "who"),
    [("cifar-worker-1", Reason.WORKER_LOST, "worker 1"), ("cifar-launcher", Reason.LAUNCHER_FAILED, "the launcher")],
)
def test_a_pod_that_is_evicted_for_its_own_use_of_storage_has_failed(
    running: World, pod: str, reason: Reason, who: str
) -> None:
    words = 'Usage of EmptyDir volume "scratch" exceeds the limit "10Mi".'
    running.change(pod, phase="Failed", reason="Evicted", message=words)
    running.look()
    error = running.status.errors[-1]
    assert (error.reason, error.message) == (reason, f"{who} was evicted: {words}")
    assert (running.status.preemptions, running.status.restarts) == (0, 1)


@pytest.mark.parametrize(
    "reason", ["UnexpectedAdmissionError", "OutOfcpu", "OutOfnvidia.com/gpu", "NodeAffinity", "NodeShutdown"]
)
@pytest.mark.parametrize("role", ["worker-1", "launcher"])
def test_a_pod_that_its_kubelet_rejects_counts_as_a_preemption(running: World, role: str, reason: str) -> None:
    running.change(f"cifar-{role}", phase="Failed", reason=reason, message="Pod was rejected: no room")
    running.look()
    error = running.status.errors[-1]
    who = "the launcher" if role == "launcher" else "worker 1"
    assert error.message == f"{who} was rejected by node node1: Pod was rejected: no room"
    assert (error.reason, running.status.preemptions, running.status.restarts) == (Reason.EVICTED, 1, 0)


def test_a_worker_that_no_kubelet_would_admit_has_failed(running: World) -> None:
    running.change("cifar-worker-1", phase="Failed", reason="AppArmor", message="Cannot enforce AppArmor")
    running.look()
    assert (running.status.preemptions, running.status.restarts) == (0, 1)


def test_a_worker_that_ends_with_its_node_counts_as_a_preemption(running: World) -> None:
    words = "Pod was terminated in response to imminent node shutdown."
    running.end("cifar-worker-0", 143)
    running.change("cifar-worker-0", reason="Terminated", message=words)
    running.look()
    assert running.status.errors[-1].message == f"worker 0 was evicted from node node1: {words}"
    assert (running.status.preemptions, running.status.restarts) == (1, 0)


def test_a_worker_whose_node_is_gone_is_told_as_such(running: World) -> None:
    running.change("cifar-worker-0", phase="Failed", disruption="DeletionByPodGC", deleting=True)
    running.look()
    error = running.status.errors[-1]
    assert (error.reason, error.node, running.status.preemptions) == (Reason.NODE_LOST, "node1", 1)
    assert error.message == "worker 0 was lost with its node node1, which is gone"


@pytest.mark.parametrize(
    ("role", "reason"), [("worker-0", Reason.NODE_LOST), ("launcher", Reason.NODE_LOST), ("worker-1", Reason.EVICTED)]
)
def test_a_pod_whose_end_and_absence_are_seen_at_once_is_told_with_what_took_it(
    running: World, role: str, reason: Reason
) -> None:
    disruption = "DeletionByPodGC" if reason is Reason.NODE_LOST else "EvictionByEvictionAPI"
    pod = replace(running.pods.pop(f"cifar-{role}"), disruption=disruption, deleting=True)
    status, _ = next_status(running.job, replace(running.observed, gone=(pod,)), now=running.now)
    (error,) = status.errors
    assert (error.reason, error.pod, error.node) == (reason, pod.name, "node1")
    assert (status.preemptions, status.restarts) == (1, 0)


WORDS = (
    "waiting for pod cifar-worker-1 to go, which node node1 should have ended by 12:00:30Z: if that node does not "
    "answer, delete it or taint it node.kubernetes.io/out-of-service"
)


def message_of(world: World) -> str:
    ready = world.status.condition(ConditionType.READY)
    return ready.message if ready else ""


def test_a_pod_that_its_node_does_not_end_is_told_with_what_to_do(running: World) -> None:
    leaves_at = NOON + timedelta(seconds=30)
    running.change("cifar-worker-1", deleting=True, leaves_at=leaves_at, disruption="DeletionByTaintManager")
    running.look()
    error = running.status.errors[-1]
    told = "worker 1 was evicted from node node1: DeletionByTaintManager"
    assert (error.reason, error.message) == (Reason.EVICTED, told)
    running.pods = {name: pod for name, pod in running.pods.items() if pod.leaves_at or not pod.deleting}
    running.wait(39)
    running.look()
    assert (running.status.phase, message_of(running)) == (Phase.RESTARTING, "the pods are being created and placed")
    _, finding = next_status(running.job, running.observed, now=running.now)
    assert plan_for(running.job, running.observed, finding, now=running.now).look_again_at == NOON + timedelta(
        seconds=40
    )
    running.wait(1)
    running.look()
    assert (running.status.phase, message_of(running)) == (Phase.RESTARTING, WORDS)
    running.vanish()
    running.launch()
    assert (running.status.phase, running.status.attempt, running.status.preemptions) == (Phase.RUNNING, 2, 1)


def test_a_pod_that_never_goes_does_not_hold_the_nodes_of_the_others_for_ever(running: World) -> None:
    running.change("cifar-worker-1", deleting=True, leaves_at=NOON + timedelta(seconds=30))
    running.look()
    running.pods = {name: pod for name, pod in running.pods.items() if pod.leaves_at or not pod.deleting}
    running.wait(12)
    running.look()
    running.wait(600)
    running.look()
    assert message_of(running).startswith(
        "1 of 3 pods had a node after scheduling.timeoutSeconds, 600 s (waiting for pod"
    )
    assert all(pod.deleting for pod in running.pods.values())


def test_a_pod_of_an_earlier_job_that_its_node_does_not_end_is_told_too() -> None:
    world = World(a_job())
    old = Pod("cifar-worker-1", "old", Role.WORKER, 1, node="node1", deleting=True, leaves_at=NOON)
    world.look()
    del world.pods["cifar-worker-1"]
    observed = replace(world.observed, strangers=(old,))
    status, _ = next_status(world.job, observed, now=NOON + timedelta(seconds=10))
    assert status.conditions[0].message == WORDS.replace("12:00:30Z", "12:00:00Z")


def test_an_elastic_job_says_so_while_it_goes_on() -> None:
    world = World(a_job(elastic={"minReplicas": 1}))
    world.launch()
    world.change("cifar-worker-1", deleting=True, leaves_at=NOON)
    world.look()
    world.wait(10)
    world.look()
    running = world.status.condition(ConditionType.RUNNING)
    assert running is not None
    assert running.message == f"up to 1 rank run on 1 worker of 2; {WORDS.replace('12:00:30Z', '12:00:00Z')}"


def test_a_start_script_tells_its_reason_itself(running: World) -> None:
    running.end("cifar-launcher", 1, "Error", '{"reason":"SshUnavailable","message":"worker 10.0.0.2 did not answer"}')
    running.wait(3)
    running.look()
    assert running.status.errors[-1].reason == Reason.SSH_UNAVAILABLE


def test_suspending_takes_all_pods_and_resuming_starts_anew(running: World) -> None:
    running.edit_policy(suspend=True)
    running.look()
    running.vanish()
    running.look()
    assert phase_of(running) is Phase.SUSPENDED
    assert running.status.start_time is None
    assert not running.pods
    running.edit_policy(suspend=False)
    running.wait(5)
    running.launch()
    assert phase_of(running) is Phase.RUNNING
    assert (running.status.attempt, running.status.restarts, running.status.preemptions) == (2, 0, 0)


def test_a_deadline_ends_the_launcher_keeps_its_pod_and_then_fails_the_job() -> None:
    world = World(a_job(runPolicy={"activeDeadlineSeconds": 60}))
    world.launch()
    world.wait(61)
    world.look()
    assert phase_of(world) is Phase.TERMINATING
    assert world.pods["cifar-launcher"].ending
    assert not world.pods["cifar-launcher"].deleting
    world.vanish()
    world.end("cifar-launcher", 143)
    world.look()
    assert phase_of(world) is Phase.FAILED
    assert world.status.conditions[0].reason == Reason.DEADLINE_EXCEEDED


def test_a_job_has_one_deadline_however_often_it_is_suspended() -> None:
    world = World(a_job(runPolicy={"activeDeadlineSeconds": 60}))
    for _ in range(5):
        world.launch()
        world.wait(11)
        world.edit_policy(suspend=True)
        world.look()
        world.vanish()
        world.wait(1000)
        world.edit_policy(suspend=False)
    world.launch()
    assert (phase_of(world), world.status.active_seconds) == (Phase.RUNNING, 55)
    world.wait(5)
    world.look()
    assert world.status.conditions[0].reason == Reason.DEADLINE_EXCEEDED


def test_a_job_that_was_suspended_when_its_time_was_over_gets_no_pods_again() -> None:
    world = World(a_job(runPolicy={"activeDeadlineSeconds": 60}))
    world.launch()
    world.edit_policy(suspend=True)
    world.wait(61)
    world.look()
    world.vanish()
    world.edit_policy(suspend=False)
    world.look()
    assert (phase_of(world), world.status.conditions[0].reason) == (Phase.FAILED, Reason.DEADLINE_EXCEEDED)
    assert not world.pods


def test_a_job_that_is_told_to_end_ends_from_every_phase_and_keeps_its_launcher(running: World) -> None:
    running.edit_policy(terminate=True)
    running.look()
    assert phase_of(running) is Phase.TERMINATING
    assert running.pods["cifar-launcher"].ending
    running.vanish()
    running.end("cifar-launcher", 143)
    running.look()
    failed = running.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert (failed.reason, failed.message) == (Reason.TERMINATED, "the job was ended: runPolicy.terminate is true")
    assert (running.status.exit_code, set(running.pods)) == (143, {"cifar-launcher"})


def test_a_suspended_job_that_is_told_to_end_has_never_begun() -> None:
    world = World(a_job(runPolicy={"suspend": True}))
    world.look()
    world.edit_policy(terminate=True)
    world.look()
    assert phases(world) == [Phase.SUSPENDED, Phase.TERMINATING, Phase.FAILED]
    assert (world.status.start_time, world.made) == (None, 0)
    told = [event.reason for event in events_between(world.job, world.statuses[0], world.statuses[1])]
    assert told == []


def test_a_worker_that_is_lost_can_be_the_end() -> None:
    world = World(a_job(runPolicy={"onWorkerLoss": "Fail"}))
    world.launch()
    world.change("cifar-worker-1", deleting=True)
    world.look()
    failed = world.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert (phase_of(world), failed.reason) == (Phase.FAILED, Reason.WORKER_LOST)
    assert failed.message == "worker 1 was deleted (attempt 1; runPolicy.onWorkerLoss is Fail)"
    assert world.status.errors[-1].pod == "cifar-worker-1"


def test_a_lost_launcher_is_no_lost_worker() -> None:
    world = World(a_job(runPolicy={"onWorkerLoss": "Fail"}))
    world.launch()
    world.change("cifar-launcher", deleting=True)
    world.look()
    assert phase_of(world) is Phase.RESTARTING


def half_placed(world: World) -> None:
    world.look()
    world.place(at_most=2)
    world.look()


def test_pods_that_do_not_all_get_a_node_are_all_released_and_made_again_later() -> None:
    world = World(a_job(scheduling={"timeoutSeconds": 60}))
    half_placed(world)
    world.wait(59)
    world.look()
    assert (phase_of(world), world.status.attempt) == (Phase.QUEUED, 1)
    world.wait(1)
    world.look()
    assert all(pod.deleting for pod in world.pods.values())
    ready = world.status.condition(ConditionType.READY)
    assert ready is not None
    assert ready.reason == Reason.SCHEDULING_TIMEOUT
    assert ready.message.startswith("2 of 3 pods had a node after scheduling.timeoutSeconds, 60 s; all are released")
    assert (phase_of(world), world.status.restarts, world.status.preemptions) == (Phase.QUEUED, 0, 0)
    world.vanish()
    world.look()
    assert not world.pods
    world.wait(16)
    world.launch()
    assert (phase_of(world), world.status.attempt) == (Phase.RUNNING, 2)


def test_the_delay_after_a_release_grows_and_differs_from_job_to_job() -> None:
    world = World(a_job(scheduling={"timeoutSeconds": 60}))
    delays = []
    for _ in range(4):
        half_placed(world)
        world.wait(60)
        world.look()
        world.vanish()
        until = released_until(world.job)
        assert until is not None
        delays.append((until - world.now).total_seconds())
        world.now = until
    assert [5 * 2**n <= delay <= 15 * 2**n for n, delay in enumerate(delays)] == [True] * 4
    other = world.job.model_copy(update={"metadata": world.job.metadata.model_copy(update={"uid": "other"})})
    assert released_until(other) != released_until(world.job)


def test_time_that_a_job_ran_is_not_time_that_it_waited_for_nodes() -> None:
    world = World(a_job(scheduling={"timeoutSeconds": 60}))
    world.look()
    world.place()
    world.change("cifar-worker-1", address="")
    world.look()
    world.wait(100)
    del world.pods["cifar-worker-1"]
    world.look()
    assert (phase_of(world), world.status.attempt) == (Phase.QUEUED, 1)
    world.wait(59)
    world.look()
    assert world.status.attempt == 1
    world.wait(1)
    world.look()
    assert world.status.attempt == 2


def test_a_finished_job_is_deleted_when_its_time_is_over(running: World) -> None:
    running.edit_policy(ttl_seconds_after_finished=60)
    running.end("cifar-launcher", 0)
    running.look()
    ended = running.status.completion_time
    assert ended is not None
    early = plan_for(running.job, running.observed, None, now=ended + timedelta(seconds=59))
    assert (early.delete_job, early.look_again_at) == (False, ended + timedelta(seconds=60))
    assert plan_for(running.job, running.observed, None, now=ended + timedelta(seconds=60)).delete_job


def test_a_deadline_that_passes_during_a_pass_is_looked_at_again_at_once() -> None:
    world = World(a_job(runPolicy={"activeDeadlineSeconds": 60}))
    world.launch()
    status, finding = next_status(world.job, world.observed, now=NOON + timedelta(seconds=59))
    assert status == world.status
    plan = plan_for(world.job, world.observed, finding, now=NOON + timedelta(seconds=61))
    assert plan.look_again_at == NOON + timedelta(seconds=60)


def test_an_image_that_cannot_be_pulled_is_a_reason_not_silence() -> None:
    world = World(a_job())
    world.look()
    world.place()
    world.change("cifar-worker-0", phase="Pending", waiting=Waiting("worker", "ImagePullBackOff", "no such image"))
    world.look()
    ready = world.status.condition(ConditionType.READY)
    assert ready is not None
    assert ready.reason == Reason.IMAGE_PULL_FAILED
    assert "no such image" in ready.message
    assert len(world.status.errors) == 1


def test_a_job_that_cannot_pull_its_image_gives_its_nodes_back_and_tries_again() -> None:
    world = World(a_job(scheduling={"timeoutSeconds": 60}))
    world.look()
    world.place()
    waiting = Waiting("worker", "ImagePullBackOff", "Back-off pulling image")
    world.change("cifar-worker-1", phase="Pending", waiting=waiting)
    world.look()
    assert (phase_of(world), world.status.errors[-1].reason) == (Phase.STARTING, Reason.IMAGE_PULL_FAILED)
    world.wait(59)
    world.look()
    assert not any(pod.deleting for pod in world.pods.values())
    world.wait(1)
    world.look()
    assert (phase_of(world), world.status.errors[-1].reason) == (Phase.QUEUED, Reason.SCHEDULING_TIMEOUT)
    assert all(pod.deleting for pod in world.pods.values())
    world.vanish()
    world.wait(60)
    world.launch()
    assert (phase_of(world), world.status.attempt, world.status.restarts) == (Phase.RUNNING, 2, 0)


def test_a_root_image_under_restricted_is_told_which_field_helps() -> None:
    world = World(a_job())
    world.look()
    words = "container has runAsNonRoot and image will run as root"
    world.change("cifar-worker-0", node="n", waiting=Waiting("worker", "CreateContainerConfigError", words))
    world.look()
    stalled = world.status.condition(ConditionType.STALLED)
    assert stalled is not None
    assert stalled.status == "True"
    assert "spec.podSecurity" in stalled.message


def test_a_volume_that_cannot_be_mounted_is_told_until_the_pod_has_an_address() -> None:
    world = World(a_job())
    world.look()
    for name in world.pods:
        world.change(name, node="n", address="" if name == "cifar-worker-1" else "10.0.0.1")
    observed = replace(world.observed, warning=Warned(EventReason.MOUNT_FAILED, 'secret "nope" not found'))
    status, _ = next_status(world.job, observed, now=NOON)
    stalled = status.condition(ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", Reason.STORAGE_UNAVAILABLE)
    assert stalled.message == 'pod cifar-worker-1 cannot mount its volumes: secret "nope" not found'
    world.change("cifar-worker-1", address="10.0.0.2")
    world.look()
    mended = world.status.condition(ConditionType.STALLED)
    assert mended is not None
    assert mended.status == "False"


def test_the_schedulers_own_words_are_shown() -> None:
    world = World(a_job())
    world.look()
    world.change("cifar-worker-0", unschedulable="0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    world.look()
    ready = world.status.condition(ConditionType.READY)
    assert ready is not None
    assert "Insufficient nvidia.com/gpu" in ready.message


def test_a_sidecar_that_fails_is_not_mistaken_for_the_program(running: World) -> None:
    end = End("proxy", 1, "Error", "", NOON)
    running.change("cifar-launcher", phase="Failed", end=end)
    running.wait(5)
    running.look()
    assert running.status.errors[-1].reason == Reason.LAUNCHER_FAILED
    assert running.status.errors[-1].container == "proxy"


def test_counts_alone_are_not_worth_a_write_at_once() -> None:
    world = World(a_job())
    world.look()
    world.place()
    world.look()
    before = world.status
    world.change("cifar-worker-0", ready=True)
    world.look()
    assert world.status.workers_ready == "1/2"
    assert not significant(before, world.status)


def test_each_transition_has_its_event_once(running: World) -> None:
    running.end("cifar-launcher", 0)
    running.look()
    told = [
        event.reason
        for old, new in zip([a_job().status, *running.statuses], running.statuses, strict=False)
        for event in events_between(running.job, old, new)
    ]
    assert told == ["Created", "Admitted", "WorkersReady", "Started", "Succeeded"]


def raw_launcher(*states: tuple[str, dict[str, Any]], phase: str = "Running") -> dict[str, Any]:
    labels = {"horovodjob.dev/job": "cifar", "horovodjob.dev/role": "launcher"}
    labels |= {"horovodjob.dev/replica-index": "0", "horovodjob.dev/attempt": "1"}
    metadata = {"name": "cifar-launcher", "namespace": "team", "uid": "u", "labels": labels}
    return {
        "metadata": metadata,
        "status": {"phase": phase, "containerStatuses": [{"name": name, "state": state} for name, state in states]},
    }


def test_a_job_has_ended_with_its_own_container_while_a_sidecar_goes_on(running: World) -> None:
    own = ("launcher", {"terminated": {"exitCode": 0, "reason": "Completed"}})
    seen = owned_pod(raw_launcher(own, ("proxy", {"running": {}})))
    assert seen is not None
    running.change("cifar-launcher", phase=seen.pod.phase, end=seen.pod.end, lingering=seen.pod.lingering)
    running.look()
    assert phase_of(running) is Phase.SUCCEEDED
    assert running.pods["cifar-launcher"].ending


def test_a_worker_that_was_deleted_while_the_operator_was_away_was_not_evicted(running: World) -> None:
    running.end("cifar-worker-0", 143)
    running.change("cifar-worker-0", deleting=True)
    running.look()
    error = running.status.errors[-1]
    assert (error.reason, running.status.restarts, running.status.preemptions) == (Reason.WORKER_LOST, 0, 1)
