"""A fake cluster with Kueue: a job with a queue and its Workload. The test decides as Kueue does."""

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from horovodjob.api.constants import LABEL_QUEUE, ConditionType, Reason, Role
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.outcome import Outcome
from horovodjob_operator.domain.plan import Plan
from horovodjob_operator.domain.pods.observed import Observed, Refusal
from horovodjob_operator.domain.status import next_status
from horovodjob_operator.kueue.queue import Queue, QueueProblem, admitted_job, queue_name, queue_of, uses_queue
from horovodjob_operator.kueue.workload import Workload, owned_workload
from horovodjob_operator.kueue.workload_manifest import job_workload
from horovodjob_operator.kueue.workload_plan import finished_status, workload_plan
from unit.domain.fake_cluster import FakeCluster, training_job

NOT_SERVED = "this cluster does not serve Workloads"


def queued_job(queue: str = "gpus", labels: dict[str, str] | None = None, **spec: Any) -> HorovodJob:
    """A CPU job of two workers with the label of a queue."""
    job = training_job(**spec)
    metadata = job.metadata.model_copy(update={"labels": {LABEL_QUEUE: queue, **(labels or {})}})
    return job.model_copy(update={"metadata": metadata})


@dataclass
class QueuedCluster(FakeCluster):
    """Checks at each write that pods have quota, and that quota has pods or a job that will have some."""

    raw: dict[str, Any] | None = None
    """The Workload as the API server stores it."""
    has_kueue: bool = True
    refusal: Refusal | None = None
    versions: int = 0

    @property
    def workload(self) -> Workload | None:
        owned = owned_workload(self.raw) if self.raw else None
        return owned.workload if owned else None

    @property
    def observed(self) -> Observed:
        observed = replace(super().observed, refusal=self.refusal)
        if not uses_queue(self.job) and self.raw is None:
            return observed
        problem = None if self.has_kueue else QueueProblem(Reason.QUEUE_UNAVAILABLE, NOT_SERVED)
        return replace(observed, queue=Queue(queue_of(self.job, self.workload), self.workload, None, problem))

    @property
    def context(self) -> JobContext:
        observed = self.observed
        job = admitted_job(self.job, observed.queue)
        return JobContext(job, observed, self.now, self.job.spec.worker.replicas - job.spec.worker.replicas)

    @property
    def stored(self) -> Workload:
        """The Workload that the job has."""
        assert self.workload is not None
        return self.workload

    @property
    def reason(self) -> str:
        return self.condition(ConditionType.READY).reason

    def _report(self, writes: list[int]) -> Outcome | None:
        status, _ = next_status(self.context)
        workload = self.workload
        if status.is_finished and not self.status.is_finished and workload and not workload.is_finished:
            if writes[0] <= 0:
                return None
            writes[0] -= 1
            body = finished_status(status, self.now)
            self.set_conditions(**{one["type"]: (True, one["reason"], one["message"]) for one in body["conditions"]})
        outcome = super()._report(writes)
        if self.status.is_finished and self.has_kueue and (workload := self.workload):
            assert workload.is_finished, "a job has ended, and its Workload has not"
        return outcome

    def _apply(self, plan: Plan, writes: list[int]) -> bool:
        changed, before = super()._apply(plan, writes), deepcopy(self.raw)
        if writes[0] > 0 and self.has_kueue:
            writes[0] -= 1
            self.apply_workload_plan()
        return changed or before != self.raw

    def apply_workload_plan(self) -> None:
        """The operator does what the Workload needs."""
        plan = workload_plan(self.context)
        if plan.create:
            assert self.raw is None
            self.raw = deepcopy(job_workload(self.job, 0))
            self.versions += 1
            self.raw["metadata"] |= {"uid": f"workload-{self.versions}", "generation": 1}
        elif self.raw is None:
            return
        elif plan.delete:
            assert not self.pods or not queue_name(self.job), "a Workload is deleted under its pods"
            self.raw = None
        elif plan.request or plan.priority:
            self.raw["spec"] = deepcopy(job_workload(self.job, 0)["spec"])
            self.raw["metadata"]["labels"] = job_workload(self.job, 0)["metadata"]["labels"]
        elif plan.status is None:
            return
        else:
            is_cleared = "admission" in self.raw["status"] and "admission" not in plan.status
            assert not (is_cleared and self.pods), "quota is given back under pods"
            self.raw["status"] = deepcopy(dict(plan.status))
        if self.raw is not None:
            self.versions += 1
            self.raw["metadata"]["resourceVersion"] = str(self.versions)

    def _create(self, role: Role, index: int, plan: Plan) -> None:
        workload = self.workload
        if queue_name(self.job):
            assert workload is not None
            assert workload.is_admitted, "a pod is created without quota"
            uids = {pod.workload_uid for pod in self.pods.values()}
            assert uids <= {workload.uid}, "a pod is created beside pods without quota"
            if role is Role.WORKER:
                workers = sum(pod.role is Role.WORKER for pod in self.pods.values())
                assert workers < workload.admitted_count(Role.WORKER), "more workers are created than are admitted"
        super()._create(role, index, plan)
        name = next(reversed(self.pods))
        self.update_pod(name, workload_uid=workload.uid if workload and queue_name(self.job) else "")

    # ---- what Kueue and its administrators do ------------------------------------------------------------------

    def set_conditions(self, **conditions: tuple[bool, str, str]) -> None:
        """Sets conditions by type: whether it is True, its reason and its message."""
        assert self.raw is not None
        status = self.raw.setdefault("status", {})
        kept = [one for one in status.get("conditions", []) if one["type"] not in conditions]
        status["conditions"] = kept + [
            {
                "type": type_,
                "status": "True" if is_true else "False",
                "reason": reason,
                "message": message,
                "lastTransitionTime": f"{self.now:%Y-%m-%dT%H:%M:%SZ}",
            }
            for type_, (is_true, reason, message) in conditions.items()
        ]
        self.versions += 1
        self.raw["metadata"]["resourceVersion"] = str(self.versions)

    def reserve(self, workers: int | None = None, flavor: str = "spot") -> None:
        """Kueue reserves quota, for so many workers."""
        assert self.raw is not None
        self.set_conditions(QuotaReserved=(True, "QuotaReserved", ""), Evicted=(False, "QuotaReserved", ""))
        counts = {one["name"]: one["count"] for one in self.raw["spec"]["podSets"]}
        if workers is not None:
            counts["worker"] = workers
        assignments = [{"name": name, "count": count, "flavors": {"cpu": flavor}} for name, count in counts.items()]
        self.raw["status"]["admission"] = {"clusterQueue": "team", "podSetAssignments": assignments}

    def admit(self, workers: int | None = None, flavor: str = "spot") -> None:
        """Kueue admits the Workload."""
        self.reserve(workers, flavor)
        self.set_conditions(Admitted=(True, "Admitted", ""))

    def evict(self, reason: str = "Preempted", message: str = "Preempted to accommodate a workload") -> None:
        """Kueue wants the quota back, and keeps it reserved until the operator clears it."""
        self.set_conditions(Evicted=(True, reason, message))

    def make_wait(self, reason: str = "WaitingForQuota", message: str = "400m more needed") -> None:
        """Kueue examines the Workload, and has no room for it."""
        self.set_conditions(QuotaReserved=(False, reason, message))

    def label(self, **labels: str | None) -> None:
        """The user changes labels of the job; None removes one."""
        merged = {**self.job.metadata.labels, **{f"kueue.x-k8s.io/{k.replace('_', '-')}": v for k, v in labels.items()}}
        kept = {key: value for key, value in merged.items() if value is not None}
        metadata = self.job.metadata.model_copy(update={"labels": kept})
        self.job = self.job.model_copy(update={"metadata": metadata})

    def run_to_running(self) -> None:
        """From admitted to Running."""
        self.reconcile()
        self.schedule_pods()
        self.reconcile()
        self.make_workers_ready()
        self.update_pod("cifar-launcher", is_ready=True)
        self.reconcile()
