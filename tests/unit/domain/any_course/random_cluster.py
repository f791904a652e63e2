"""A fake cluster in which random things happen to a job, its pods and what the operator observes of them."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import Any

from horovodjob.api.constants import Gang, Reason, Role
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain import names
from horovodjob_operator.domain.autoscaler import AutoscalerEvent, AutoscalerReason
from horovodjob_operator.domain.checks.outcome import Outcome
from horovodjob_operator.domain.plan import Plan, plan_for
from horovodjob_operator.domain.pods.observed import KubeletEventReason, KubeletWarning, Observed, Refusal
from horovodjob_operator.domain.pods.pod import ContainerTermination, ContainerWaiting, Pod
from horovodjob_operator.domain.status import next_status
from unit.domain.fake_cluster import FakeCluster, training_job

SECONDS = (0, 0.4, 1, 2, 5, 10, 20, 40, 400)
FATES = ("UnexpectedAdmissionError", "OutOfcpu", "Evicted", "AppArmor", "Terminated", "DeadlineExceeded")
DISRUPTIONS = ("", "EvictionByEvictionAPI", "DeletionByPodGC", "DeletionByTaintManager")
MESSAGES = ("", "step 7", '{"reason": "SshUnavailable", "message": "no answer"}')
WAITING = ("ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError", "CreateContainerError")


def random_job(random: Random) -> HorovodJob:
    """A job of one of the kinds, with short times."""
    policy = {
        "backoffLimit": random.choice([0, 1, 50]),
        "activeDeadlineSeconds": random.choice([None, None, 300]),
        "onWorkerLoss": random.choice(["Restart", "Restart", "Fail"]),
        "cleanPodPolicy": random.choice(["Running", "All", "None"]),
        "ttlSecondsAfterFinished": random.choice([None, 60]),
    }
    replicas = random.randint(1, 3)
    preparations: tuple[dict[str, Any], ...] = ({}, {}, {"preparation": {"command": "true"}})
    kinds: tuple[dict[str, Any], ...] = ({}, {"elastic": {"minReplicas": 1}}, {"launcher": {"asWorker": True}})
    return training_job(
        worker={"replicas": replicas, "gpus": 0},
        scheduling={"timeoutSeconds": random.choice([5, 20, 600]), "gang": random.choice(list(Gang))},
        runPolicy=policy,
        **random.choice(kinds),
        **random.choice(preparations),
    )


@dataclass
class RandomCluster(FakeCluster):
    """A job with random events; `random` alone determines them."""

    random: Random = field(default_factory=Random)
    stale_owner_pods: tuple[Pod, ...] = ()
    deleted_pods: dict[str, Pod] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # The operator's clock; times of the API server are those of another.
        self.clock_skew = timedelta(seconds=self.random.choice([0, 0, 0, 30, -30]))

    @property
    def observed(self) -> Observed:
        return Observed(
            pods=tuple(self.pods.values()),
            stale_owner_pods=self.stale_owner_pods,
            deleted_pods=tuple(self.deleted_pods.values()),
            refusal=self.refusal,
            kubelet_warning=self.kubelet_warning,
            autoscaler_event=self.autoscaler_event,
            autoscaler_read_at=self.now,
        )

    def step(self) -> None:
        """Something happens."""
        events: tuple[Callable[[], None], ...] = (
            *[self._time_passes] * 4,
            *[lambda: self.schedule_pods(self.random.choice([1, 1000]))] * 2,
            *[self._the_ranks_start] * 3,
            self._the_scheduler_has_no_node,
            *[self._a_container_ends] * 2,
            self._a_pod_fails,
            self._a_pod_waits,
            *[self._a_pod_terminates] * 2,
            *[self._terminating_pods_are_deleted] * 2,
            self._a_pod_is_deleted_at_once,
            self._a_node_changes,
            self._the_kubelet_posts_an_event,
            self._the_autoscaler_posts_an_event,
            self._an_object_is_refused,
            self._an_earlier_job_has_a_pod,
            self._the_user_edits_the_job,
        )
        self.random.choice(events)()

    def reconcile_or_die(self) -> None:
        """The operator reconciles the job, and can be killed meanwhile."""
        if self.random.random() < 0.1:
            self.reconcile(die_after=self.random.randint(0, 4))
        else:
            self.reconcile()

    def _create(self, role: Role, index: int, plan: Plan) -> None:
        super()._create(role, index, plan)
        name = names.launcher_name(self.job) if role is Role.LAUNCHER else names.worker_name(self.job, index)
        created_at = (self.now + self.clock_skew).replace(microsecond=0)
        self.update_pod(name, created_at=created_at)

    def settled(self) -> Outcome | None:
        """The outcome of the checks, when the status is written. Raises AssertionError if the status never settles."""
        for _ in range(10):
            status, outcome = self._checked_status()
            if status == self.status:
                return outcome
            self.statuses.append(status)
            self.job = self.job.model_copy(update={"status": status})
        raise AssertionError(f"the status reaches no stable state: {self.status}")

    def _a_pod(self) -> Pod | None:
        return self.random.choice(sorted(self.pods.values(), key=lambda pod: pod.name)) if self.pods else None

    def _time_passes(self) -> None:
        outcome = next_status(self.context)[1]
        at = plan_for(self.context, outcome).requeue_at
        if at and at > self.now and self.random.random() < 0.5:
            self.now = at + timedelta(seconds=self.random.choice([-0.3, 0, 0, 0.3]))
        else:
            self.wait(self.random.choice(SECONDS))

    def run_pods(self) -> None:
        """All pods get nodes that report, and their containers start."""
        self.schedule_pods()
        for pod in list(self.pods.values()):
            if pod.is_active and pod.node:
                self.update_pod(pod.name, waiting=None, has_pending_container=False)
        self.make_workers_ready()

    def _the_ranks_start(self) -> None:
        self.run_pods()
        self.reconcile_or_die()
        launcher = self.observed.launcher
        if launcher and launcher.is_active and launcher.hosts:
            self.update_pod(launcher.name, is_ready=True)

    def _the_scheduler_has_no_node(self) -> None:
        for pod in list(self.pods.values()):
            if not pod.node:
                self.update_pod(pod.name, unschedulable_message="0/3 nodes are available")

    def _a_container_ends(self) -> None:
        pod = self._a_pod()
        if pod is None or not pod.is_active or not pod.node:
            return
        code = self.random.choice([0, 1, 137] if pod.role is Role.LAUNCHER and pod.hosts else [1, 137])
        unreachable = json.dumps({"unreachable": " ".join(line.split()[0] for line in pod.hosts.splitlines()[:1])})
        message = self.random.choice((*MESSAGES, unreachable))
        self.end_container(pod.name, code, self.random.choice(["Error", "OOMKilled"]) if code else "", message)
        skew = self.random.choice([None, -5, 0, 0, 0, 30, 100])
        at = None if skew is None else self.now + timedelta(seconds=skew)
        end = ContainerTermination(pod.role.value, code, "Error", message, at)
        sidecars = self.random.random() < 0.2
        self.update_pod(pod.name, termination=end, has_running_sidecars=sidecars)

    def _a_pod_fails(self) -> None:
        if pod := self._a_pod():
            disruption = self.random.choice(DISRUPTIONS[:2])
            self.update_pod(pod.name, phase="Failed", reason=self.random.choice(FATES), disruption=disruption)

    def _a_pod_waits(self) -> None:
        pod = self._a_pod()
        if pod and pod.node and pod.is_active:
            waiting = ContainerWaiting(pod.role.value, self.random.choice(WAITING), "no")
            address = self.random.choice([pod.address, ""])
            self.update_pod(pod.name, waiting=self.random.choice([waiting, waiting, None]), address=address)

    def _a_pod_terminates(self) -> None:
        if pod := self._a_pod():
            ends = self.now + timedelta(seconds=self.random.choice([0, 30]))
            at = pod.deletion_timestamp or self.random.choice([None, ends])
            disruption = self.random.choice(DISRUPTIONS)
            self.update_pod(pod.name, is_terminating=True, deletion_timestamp=at, disruption=disruption)

    def _terminating_pods_are_deleted(self) -> None:
        self.deleted_pods = {name: pod for name, pod in self.pods.items() if pod.is_terminating}
        self.remove_terminating_pods()
        self.reconcile_or_die()
        self.deleted_pods = {}

    def _a_pod_is_deleted_at_once(self) -> None:
        if pod := self._a_pod():
            del self.pods[pod.name]

    def _a_node_changes(self) -> None:
        if pod := self._a_pod():
            self.update_pod(pod.name, has_unready_node=bool(pod.node) and not pod.has_unready_node)

    def _the_kubelet_posts_an_event(self) -> None:
        warning = KubeletWarning(self.random.choice(list(KubeletEventReason)), 'secret "nope" not found')
        self.kubelet_warning = self.random.choice([warning, None])

    def _the_autoscaler_posts_an_event(self) -> None:
        event = AutoscalerEvent(self.random.choice(list(AutoscalerReason)), "", self.now)
        self.autoscaler_event = self.random.choice([event, None])

    def _an_object_is_refused(self) -> None:
        at = self.random.choice([None, self.now + timedelta(seconds=10)])
        reason = self.random.choice([Reason.QUOTA_EXCEEDED, Reason.INVALID_SPEC, Reason.CREATION_FAILED])
        is_unreadable = self.random.random() < 0.2
        keeps_pods = reason is Reason.CREATION_FAILED
        refused = Refusal(reason, "refused", at, keeps_pods=keeps_pods, is_unreadable=is_unreadable)
        self.refusal = self.random.choice([refused, None, None])

    def _an_earlier_job_has_a_pod(self) -> None:
        name, index = self.random.choice([("cifar-worker-0", 0), ("cifar-launcher", 0), ("cifar-worker-1", 1)])
        role = Role.LAUNCHER if "launcher" in name else Role.WORKER
        old = Pod(name, "old", role, index, node="node9", is_terminating=True)
        self.stale_owner_pods = self.random.choice([(), (replace(old, deletion_timestamp=self.now),)])
        if name in self.pods:
            self.stale_owner_pods = ()

    def _the_user_edits_the_job(self) -> None:
        spec, policy = self.job.spec, self.job.spec.run_policy
        edits: list[Callable[[], None]] = [lambda: self.edit_run_policy(suspend=not policy.suspend)] * 3
        if policy.suspend:
            edits.append(lambda: self.edit_spec(image="trainer:2"))
        if spec.elastic:
            edits.append(lambda: self.scale(self.random.randint(1, 4)))
        if self.random.random() < 0.1:
            edits = [lambda: self.edit_run_policy(terminate=True)]
        self.random.choice(edits)()
