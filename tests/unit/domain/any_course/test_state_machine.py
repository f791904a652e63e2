"""Properties of a job under random sequences of events, checked by a state machine."""

from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import initialize, invariant, precondition, rule

from horovodjob.api.constants import ConditionType, Role
from support.phases import PHASES, may_follow
from unit.domain.any_course.user_rules import UserRules
from unit.domain.fake_cluster import FakeCluster, training_job

# A condition that is True in its phase alone.
OWN_CONDITIONS = [type_ for type_ in ConditionType if type_.value in PHASES]


class JobStateMachine(UserRules):
    """A cluster with random events, and an operator that can be killed after any write."""

    @initialize(
        backoff=st.integers(0, 2),
        deadline=st.sampled_from([None, 300]),
        replicas=st.integers(1, 3),
        timeout=st.sampled_from([20, 600]),
        loss=st.sampled_from(["Restart", "Fail"]),
        gang=st.sampled_from(["None", "Native", "Volcano"]),
        kind=st.sampled_from(["fixed", "elastic", "the launcher is a worker"]),
    )
    def create_job(
        self, backoff: int, deadline: int | None, replicas: int, timeout: int, loss: str, gang: str, kind: str
    ) -> None:
        policy = {"backoffLimit": backoff, "activeDeadlineSeconds": deadline, "onWorkerLoss": loss}
        size, placing = {"replicas": replicas, "gpus": 0}, {"timeoutSeconds": timeout, "gang": gang}
        kinds: dict[str, dict[str, Any]] = {
            "fixed": {},
            "elastic": {"elastic": {"minReplicas": min(replicas, 2)}},
            "the launcher is a worker": {"launcher": {"asWorker": True}},
        }
        self.cluster = FakeCluster(training_job(worker=size, scheduling=placing, runPolicy=policy, **kinds[kind]))

    @rule(die_after=st.one_of(st.none(), st.integers(0, 4)))
    def reconcile(self, die_after: int | None) -> None:
        self.cluster.wait(1)  # the times of a status are whole seconds
        self.cluster.reconcile(die_after=die_after)

    @rule()
    def pods_are_scheduled(self) -> None:
        self.cluster.schedule_pods()

    @rule()
    def workers_become_ready(self) -> None:
        self.cluster.make_workers_ready()

    @precondition(lambda self: any(pod.role is Role.LAUNCHER and pod.hosts for pod in self.cluster.pods.values()))
    @rule()
    def mpirun_starts(self) -> None:
        for pod in self.cluster.pods.values():
            if pod.role is Role.LAUNCHER and pod.is_active and pod.node and pod.hosts:
                self.cluster.update_pod(pod.name, is_ready=True)
                return

    @rule()
    def terminating_pods_are_deleted(self) -> None:
        self.cluster.remove_terminating_pods()

    @precondition(lambda self: self.cluster.pods)
    @rule(data=st.data(), code=st.sampled_from([0, 1, 137]), reason=st.sampled_from(["Error", "OOMKilled"]))
    def a_container_ends(self, data: Any, code: int, reason: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.cluster.pods)))
        pod = self.cluster.pods[name]
        # A launcher without hosts waits for them, and a worker never ends with success.
        possible = code or (pod.role is Role.LAUNCHER and pod.hosts)
        if pod.is_active and pod.node and possible:
            self.cluster.end_container(name, code, reason if code else "Completed")

    @precondition(lambda self: "cifar-launcher" in self.cluster.pods)
    @rule(data=st.data())
    def the_launcher_cannot_reach_a_worker(self, data: Any) -> None:
        launcher = self.cluster.pods["cifar-launcher"]
        if launcher.is_active and launcher.node and launcher.hosts:
            address = data.draw(st.sampled_from(launcher.hosts.splitlines())).split()[0]
            self.cluster.end_container(launcher.name, 1, message=f'{{"unreachable": "{address}"}}')

    @precondition(lambda self: self.cluster.pods)
    @rule(data=st.data(), at_once=st.booleans())
    def a_pod_is_deleted(self, data: Any, at_once: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.cluster.pods)))
        self.cluster.update_pod(
            name, is_terminating=True, disruption=data.draw(st.sampled_from(["", "EvictionByEvictionAPI"]))
        )
        if at_once:
            self.cluster.remove_terminating_pods()

    @precondition(lambda self: len(self.cluster.statuses) > 6)
    @rule()
    def the_user_terminates_the_job(self) -> None:
        self.cluster.edit_run_policy(terminate=True)

    @rule()
    def one_pod_is_scheduled(self) -> None:
        self.cluster.schedule_pods(at_most=1)

    @rule()
    def the_other_pods_are_unschedulable(self) -> None:
        for pod in list(self.cluster.pods.values()):
            if not pod.node:
                self.cluster.update_pod(pod.name, unschedulable_message="0/1 nodes are available")

    @precondition(lambda self: self.cluster.job.spec.elastic)
    @rule(more=st.integers(0, 2))
    def the_user_scales(self, more: int) -> None:
        self.cluster.scale(self.cluster.job.spec.min_workers + more)

    @rule(seconds=st.sampled_from([0.5, 3, 30, 400]))
    def time_passes(self, seconds: float) -> None:
        self.cluster.wait(seconds)

    @invariant()
    def statuses_are_consistent(self) -> None:
        if not hasattr(self, "cluster"):
            return
        previous = None
        for status in self.cluster.statuses:
            old = previous.phase if previous else None
            assert status.phase is not None
            assert status.phase is old or may_follow(old, status.phase), f"{old} -> {status.phase}"
            if previous:
                assert status.attempt >= previous.attempt
                assert status.restarts >= previous.restarts
                assert status.preemptions >= previous.preemptions
                assert status != previous
            assert status.restarts <= self.cluster.job.spec.run_policy.backoff_limit
            self._conditions_agree(status)
            previous = status

    @invariant()
    def pods_of_one_attempt_have_one_spec(self) -> None:
        pods = [pod for pod in self.cluster.pods.values() if not pod.is_terminating] if hasattr(self, "cluster") else []
        if any(pod.role is Role.LAUNCHER and pod.attempt == self.cluster.status.attempt for pod in pods):
            assert len({pod.spec_hash for pod in pods}) == 1

    def _conditions_agree(self, status: Any) -> None:
        true = {condition.type for condition in status.conditions if condition.status == "True"}
        for type_ in OWN_CONDITIONS:
            assert (type_ in true) == (status.phase == type_.value), f"{type_} in {status.phase}"
        assert ConditionType.READY not in true or ConditionType.RECONCILING not in true
        assert (status.completion_time is not None) == status.is_finished

    def teardown(self) -> None:
        """With pods that run to their end, every job finishes and no worker that runs is left."""
        if not hasattr(self, "cluster"):
            return
        self.the_user_suspends_or_resumes(False)
        for _ in range(12):
            self.cluster.reconcile()
            self.cluster.remove_terminating_pods()
            self.cluster.wait(400 if not self.cluster.job.spec.run_policy.active_deadline_seconds else 100)
            self.cluster.reconcile()
            self.cluster.schedule_pods()
            self.cluster.reconcile()
            self.cluster.make_workers_ready()
            launcher = self.cluster.pods.get("cifar-launcher")
            if launcher and launcher.is_active and launcher.node and (launcher.hosts or launcher.is_stopping):
                self.cluster.end_container("cifar-launcher", 143 if launcher.is_stopping else 0, "Completed")
            self.cluster.reconcile()
            self.cluster.remove_terminating_pods()
        assert self.cluster.status.is_finished, self.cluster.status
        assert not [pod for pod in self.cluster.pods.values() if pod.role is Role.WORKER and pod.is_active]


TestJobStateMachine = JobStateMachine.TestCase
TestJobStateMachine.settings = settings(
    max_examples=80, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
