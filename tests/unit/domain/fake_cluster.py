"""A fake cluster for tests of the domain: a job, its pods, and a model of how a cluster carries out a plan."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from horovodjob.api.constants import ConditionType, Phase, Role
from horovodjob.api.job import HorovodJob, Metadata
from horovodjob.api.spec import HorovodJobSpec
from horovodjob.api.status import Condition, HorovodJobStatus
from horovodjob_operator.domain import names
from horovodjob_operator.domain.autoscaler import AutoscalerEvent
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.outcome import Outcome
from horovodjob_operator.domain.plan import Plan, plan_for
from horovodjob_operator.domain.pods.observed import KubeletWarning, Observed, Refusal
from horovodjob_operator.domain.pods.pod import ContainerTermination, Pod
from horovodjob_operator.domain.pods.pod_facts import owned_pod
from horovodjob_operator.domain.progress_report import ProgressReport
from horovodjob_operator.domain.silence import Silence
from horovodjob_operator.domain.stall_report import StallReport, UsageReport
from horovodjob_operator.domain.status import next_status

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
UID = "5e7c1f0a-0000-4000-8000-000000000001"


def training_job(name: str = "cifar", *, status: HorovodJobStatus | None = None, **spec: Any) -> HorovodJob:
    """A CPU job of two workers; `spec` has the field names of the API."""
    defaults: dict[str, Any] = {"image": "trainer", "command": ["train"], "worker": {"replicas": 2, "gpus": 0}}
    return HorovodJob(
        metadata=Metadata(name=name, namespace="team", uid=UID, creation_timestamp=NOON),
        spec=HorovodJobSpec.model_validate(defaults | spec),
        status=status or HorovodJobStatus(),
    )


@dataclass
class FakeCluster:
    """A job and its pods. Plans take effect at once; the test acts as scheduler and kubelet."""

    job: HorovodJob
    now: datetime = NOON
    pods: dict[str, Pod] = field(default_factory=dict)
    statuses: list[HorovodJobStatus] = field(default_factory=list)
    created_pods: int = 0
    kubelet_warning: KubeletWarning | None = None
    autoscaler_event: AutoscalerEvent | None = None
    refusal: Refusal | None = None
    progress_report: ProgressReport | None = None
    stall_report: StallReport | None = None
    silence: Silence | None = None
    usage: UsageReport | None = None
    """What rank 0 has reported before a report without it."""
    node_conditions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    own_deletions: set[str] = field(default_factory=set)
    """Names of the pods that the operator has deleted: their ends must have no consequences."""

    @property
    def observed(self) -> Observed:
        return Observed(
            pods=tuple(self.pods.values()),
            refusal=self.refusal,
            kubelet_warning=self.kubelet_warning,
            autoscaler_event=self.autoscaler_event,
            autoscaler_read_at=self.now,
            progress_report=self.progress_report,
            stall_report=self.stall_report,
            silence=self.silence,
            usage=self._usage,
            node_conditions=self.node_conditions,
        )

    @property
    def _usage(self) -> UsageReport | None:
        report = self.stall_report
        return report.usage or self.usage if report and report.attempt == self.job.status.attempt else None

    @property
    def context(self) -> JobContext:
        return JobContext(self.job, self.observed, self.now)

    @property
    def status(self) -> HorovodJobStatus:
        return self.job.status

    def condition(self, type_: ConditionType) -> Condition:
        """A condition that the job has."""
        found = self.status.condition(type_)
        assert found is not None
        return found

    @property
    def message(self) -> str:
        """What the job says."""
        return self.condition(ConditionType.READY).message

    @property
    def phases(self) -> list[Phase | None]:
        """The phases of the job in order, each once per stay."""
        return [phase for phase, _ in groupby(status.phase for status in self.statuses)]

    def reconcile(self, *, after: float = 0, die_after: int | None = None) -> None:
        """Time passes; then passes run until nothing changes, or the operator dies after this number of writes."""
        self.wait(after)
        writes = [die_after if die_after is not None else 10_000]
        for _ in range(20):
            outcome = self._report(writes)
            if writes[0] <= 0 or not self._apply(plan_for(self.context, outcome), writes):
                return
        raise AssertionError(f"the passes reach no stable state: {self.status}")

    def next_plan(self) -> Plan:
        """What the operator does after it has written the status."""
        outcome = self._report([10_000])
        return plan_for(self.context, outcome)

    def _report(self, writes: list[int]) -> Outcome | None:
        for _ in range(10):
            status, outcome = self._checked_status()
            if status == self.status or writes[0] <= 0:
                return outcome
            writes[0] -= 1
            self.statuses.append(status)
            self.job = self.job.model_copy(update={"status": status})
        raise AssertionError(f"the status reaches no stable state: {self.status}")

    def _checked_status(self) -> tuple[HorovodJobStatus, Outcome | None]:
        """The next status. Raises AssertionError if it blames a pod for its deletion by the operator."""
        status, outcome = next_status(self.context)
        failures = (outcome.failure, *outcome.worker_losses) if outcome else ()
        blamed = {failure.failed_pod for failure in failures if failure}
        assert not blamed & self.own_deletions, f"the operator has deleted {blamed & self.own_deletions} itself"
        return status, outcome

    def _apply(self, plan: Plan, writes: list[int]) -> bool:
        """Whether the plan changed anything."""
        before = dict(self.pods)
        for effect in self._effects(plan):
            if writes[0] <= 0:
                return False
            writes[0] -= 1
            effect()
        return before != self.pods

    def _effects(self, plan: Plan) -> list[Any]:
        effects: list[Any] = []
        for pod in list(self.pods.values()):
            of_role = plan.delete_workers and pod.role is Role.WORKER and pod.index not in plan.keep_workers
            is_unscheduled = plan.delete_unscheduled_pods and not pod.node
            if plan.delete_all_pods or of_role or is_unscheduled or pod.name in plan.delete_pods:
                effects.append(lambda pod=pod: self._delete(pod))
        if plan.dry_run:
            return effects
        if plan.create_launcher:
            effects.append(lambda: self._create(Role.LAUNCHER, 0, plan))
        for index in plan.create_workers:
            effects.append(lambda index=index: self._create(Role.WORKER, index, plan))
        launcher = names.launcher_name(self.job)
        if plan.publish_hosts:
            effects.append(lambda: self.update_pod(launcher, hosts=plan.hosts))
        for name in sorted(plan.stop_pods):
            effects.append(lambda name=name: self.update_pod(name, is_stopping=True))
        return effects

    def _create(self, role: Role, index: int, plan: Plan) -> None:
        name = names.launcher_name(self.job) if role is Role.LAUNCHER else names.worker_name(self.job, index)
        assert name not in self.pods, f"{name} is created twice"
        self.created_pods += 1
        self.own_deletions.discard(name)
        uid, attempt = f"uid-{self.created_pods}", self.status.attempt
        gang, hosts = self.job.spec.scheduling.gang, plan.hosts if role is Role.LAUNCHER else ""
        created_at = self.now.replace(microsecond=0)  # times of the API server are whole seconds
        pod = Pod(name, uid, role, index, attempt, owner_uid=UID, hosts=hosts, created_at=created_at, gang=gang)
        self.pods[name] = replace(pod, spec_hash=plan.spec_hash)

    def _delete(self, pod: Pod) -> None:
        if not pod.is_terminating:
            self.own_deletions.add(pod.name)
        self.update_pod(pod.name, is_terminating=True)

    def edit_run_policy(self, **policy: Any) -> None:
        """The user changes the run policy."""
        spec = self.job.spec
        self.edit_spec(run_policy=spec.run_policy.model_copy(update=policy))

    def scale(self, replicas: int) -> None:
        """The user changes the number of workers."""
        spec = self.job.spec
        self.edit_spec(worker=spec.worker.model_copy(update={"replicas": replicas}))

    def edit_spec(self, **fields: Any) -> None:
        """The user changes fields of the spec."""
        metadata = self.job.metadata.model_copy(update={"generation": self.job.metadata.generation + 1})
        spec = self.job.spec.model_copy(update=fields)
        self.job = self.job.model_copy(update={"metadata": metadata, "spec": spec})

    def update_pod(self, name: str, **facts: Any) -> None:
        self.pods[name] = replace(self.pods[name], **facts)

    def remove_terminating_pods(self) -> None:
        """Terminating pods are deleted."""
        self.pods = {name: pod for name, pod in self.pods.items() if not pod.is_terminating}

    def schedule_pods(self, at_most: int = 1000) -> None:
        """Pods get a node and an address, and start."""
        for number, (name, pod) in enumerate(sorted(self.pods.items())[:at_most]):
            if pod.is_active and not pod.node:
                address = f"10.0.0.{number + 1}"
                self.update_pod(
                    name,
                    node="node1",
                    scheduled_at=self.now,
                    address=address,
                    phase="Running",
                    unschedulable_message="",
                )

    def make_workers_ready(self) -> None:
        for name, pod in list(self.pods.items()):
            if pod.role is Role.WORKER and pod.is_active and pod.node:
                self.update_pod(name, is_ready=True)

    def start(self) -> None:
        """From new to Running."""
        self.reconcile()
        self.schedule_pods()
        self.reconcile()
        self.make_workers_ready()
        self.update_pod(names.launcher_name(self.job), is_ready=True)
        self.reconcile()

    def end_container(self, name: str, exit_code: int, reason: str = "Error", message: str = "") -> None:
        """The pod's container ends."""
        role = self.pods[name].role
        end = ContainerTermination(role.value, exit_code, reason, message, self.now)
        self.update_pod(name, phase="Failed" if exit_code else "Succeeded", is_ready=False, termination=end)

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def pod_facts(made: dict[str, Any]) -> Pod:
    """The facts of a pod that the API server has created from this body."""
    seen = owned_pod(made | {"metadata": {"uid": "u"} | made["metadata"]})
    assert seen is not None
    return seen.pod


def new_cluster(**spec: Any) -> FakeCluster:
    """A job with pods that wait for nodes; `spec` is that of training_job."""
    cluster = FakeCluster(training_job(**spec))
    cluster.reconcile()
    return cluster


def running_cluster(**spec: Any) -> FakeCluster:
    """A job in phase Running."""
    cluster = FakeCluster(training_job(**spec))
    cluster.start()
    return cluster


def phase_of(cluster: FakeCluster) -> Phase | None:
    """The phase of the job."""
    return cluster.status.phase  # a function: mypy narrows a property by the first assertion about it
