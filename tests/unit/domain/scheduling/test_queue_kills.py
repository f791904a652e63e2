"""Random courses of a job in a queue of Kueue, with kills: pods have quota, and quota is given back."""

from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from horovodjob.api.constants import Phase, Role
from unit.domain.scheduling.queued_cluster import QueuedCluster, queued_job


def has_workload(machine: "QueueStateMachine") -> bool:
    return machine.cluster.workload is not None


class QueueStateMachine(RuleBasedStateMachine):
    """A cluster with Kueue, and an operator that can be killed after any write; the cluster checks each write."""

    cluster: QueuedCluster

    @initialize(replicas=st.integers(1, 3), kind=st.sampled_from(["fixed", "elastic", "the launcher is a worker"]))
    def create_job(self, replicas: int, kind: str) -> None:
        kinds: dict[str, dict[str, Any]] = {
            "fixed": {},
            "elastic": {"elastic": {"minReplicas": 1}},
            "the launcher is a worker": {"launcher": {"asWorker": True}},
        }
        policy = {"backoffLimit": 1, "activeDeadlineSeconds": 300}
        self.cluster = QueuedCluster(
            queued_job(worker={"replicas": replicas, "gpus": 0}, runPolicy=policy, **kinds[kind])
        )

    @rule(die_after=st.one_of(st.none(), st.integers(0, 5)))
    def reconcile(self, die_after: int | None) -> None:
        self.cluster.wait(1)
        self.cluster.reconcile(die_after=die_after)

    @precondition(has_workload)
    @rule(fewer=st.booleans())
    def kueue_admits(self, fewer: bool) -> None:
        workload = self.cluster.workload
        if workload and not workload.has_reservation and not workload.is_finished and workload.is_active:
            minimum = workload.pod_sets["worker"].min_count if "worker" in workload.pod_sets else None
            self.cluster.admit(minimum if fewer else None)

    @precondition(has_workload)
    @rule(reason=st.sampled_from(["Preempted", "ClusterQueueStopped", "AdmissionCheck"]))
    def kueue_evicts(self, reason: str) -> None:
        workload = self.cluster.workload
        if workload and workload.has_reservation and not workload.is_finished:
            self.cluster.evict(reason)

    @precondition(has_workload)
    @rule()
    def an_administrator_deletes_the_workload(self) -> None:
        self.cluster.raw = None

    @rule(has_kueue=st.booleans())
    def kueue_is_removed_or_installed(self, has_kueue: bool) -> None:
        self.cluster.has_kueue = has_kueue
        if not has_kueue:
            self.cluster.raw = None

    @rule(queue=st.sampled_from(["gpus", "other", None]))
    def the_user_changes_the_queue(self, queue: str | None) -> None:
        self.cluster.label(queue_name=queue)

    @precondition(lambda self: self.cluster.job.spec.elastic)
    @rule(replicas=st.integers(1, 4))
    def the_user_scales(self, replicas: int) -> None:
        self.cluster.scale(replicas)

    @rule(suspend=st.booleans())
    def the_user_suspends_or_resumes(self, suspend: bool) -> None:
        self.cluster.edit_run_policy(suspend=suspend)

    @rule(image=st.sampled_from(["trainer", "trainer:2"]))
    def the_user_changes_the_job_while_the_operator_is_down(self, image: str) -> None:
        suspend = self.cluster.job.spec.run_policy.suspend
        self.cluster.edit_run_policy(suspend=True)
        self.cluster.edit_spec(image=image)
        self.cluster.edit_run_policy(suspend=suspend)

    @rule()
    def pods_start(self) -> None:
        self.cluster.schedule_pods()
        self.cluster.make_workers_ready()

    @precondition(lambda self: any(pod.role is Role.LAUNCHER and pod.hosts for pod in self.cluster.pods.values()))
    @rule(code=st.sampled_from([None, 0, 1]))
    def mpirun_starts_or_ends(self, code: int | None) -> None:
        launcher = self.cluster.pods["cifar-launcher"]
        if launcher.is_active and launcher.node and code is None:
            self.cluster.update_pod(launcher.name, is_ready=True)
        elif launcher.is_active and launcher.node:
            self.cluster.end_container(launcher.name, code or 0, "Error" if code else "Completed")

    @rule()
    def terminating_pods_are_deleted(self) -> None:
        self.cluster.remove_terminating_pods()

    @rule(seconds=st.sampled_from([3, 30, 400]))
    def time_passes(self, seconds: float) -> None:
        self.cluster.wait(seconds)

    @invariant()
    def a_waiting_job_has_no_running_time(self) -> None:
        if not hasattr(self, "cluster"):
            return
        for old, new in zip(self.cluster.statuses, self.cluster.statuses[1:], strict=False):
            assert new.preemptions >= old.preemptions
            assert new.restarts <= 1

    def teardown(self) -> None:
        """When Kueue admits the job and its pods run, it ends; whatever happens, no quota remains."""
        if not hasattr(self, "cluster"):
            return
        self.kueue_is_removed_or_installed(True)
        self.the_user_suspends_or_resumes(False)
        self.cluster.edit_run_policy(active_deadline_seconds=None)
        for _ in range(12):
            self.cluster.reconcile()
            self.cluster.remove_terminating_pods()
            self.cluster.wait(400)
            self.cluster.reconcile()
            self.kueue_admits(False)
            self.cluster.reconcile()
            self.pods_start()
            self.cluster.reconcile()
            launcher = self.cluster.pods.get("cifar-launcher")
            if launcher and launcher.is_active and launcher.node and (launcher.hosts or launcher.is_stopping):
                self.cluster.end_container("cifar-launcher", 143 if launcher.is_stopping else 0, "Completed")
            self.cluster.reconcile()
            self.cluster.remove_terminating_pods()
        assert self.cluster.status.phase in (Phase.SUCCEEDED, Phase.FAILED), self.cluster.status
        assert self.cluster.workload is None or self.cluster.workload.is_finished


TestQueueStateMachine = QueueStateMachine.TestCase
TestQueueStateMachine.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
