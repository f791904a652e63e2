"""The input of all checks: the facts about one job, and what several checks derive from them."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from horovodjob.api.constants import ConditionType, Gang, Phase, Reason, Role
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain import names
from horovodjob_operator.domain.autoscaler import ComingNodes
from horovodjob_operator.domain.pods.observed import Observed
from horovodjob_operator.domain.pods.pod import Pod
from horovodjob_operator.domain.pods.termination_message import ended_hosts, termination_reason, unreachable_hosts
from horovodjob_operator.kueue.queue import Queue

# A common clock skew is worth a wait. A clock that is further ahead is wrong, and its times are not usable.
MAX_CLOCK_SKEW = timedelta(seconds=60)


def is_credible(time: datetime, now: datetime) -> bool:
    """Whether a time can be right: the clock of the replica or the kubelet that has written it can be wrong."""
    return time - now <= MAX_CLOCK_SKEW


@dataclass(frozen=True)
class JobContext:
    """A job, its observed state and the time. Each derived value is computed once, in linear time in the workers."""

    job: HorovodJob
    observed: Observed
    now: datetime
    withheld_workers: int = 0
    """Workers of an elastic job that its queue has not admitted; `job` is without them."""

    def next_time(self, *times: datetime | None) -> datetime | None:
        """The earliest of these times that is not over; the checks have already considered those that are over."""
        return min((at for at in times if at and at > self.now), default=None)

    @cached_property
    def launcher(self) -> Pod | None:
        """The launcher of the current attempt."""
        launcher = self.observed.launcher
        return launcher if launcher and launcher.attempt == self.job.status.attempt else None

    @cached_property
    def has_published_hosts(self) -> bool:
        """Whether the launcher of the current attempt has its hosts, workers of earlier attempts among them."""
        return self.launcher is not None and bool(self.launcher.hosts)

    @cached_property
    def workers(self) -> dict[int, Pod]:
        """The workers by index."""
        return self.observed.workers(self.job.spec.worker_indices)

    @cached_property
    def spec_hash(self) -> str:
        """Hash of the spec that pods of the attempt are created from: that of the launcher, or else of the job."""
        return self.launcher.spec_hash if self.launcher else names.spec_hash(self.job)

    @cached_property
    def secret_names(self) -> tuple[str, ...]:
        """Names of the Secrets that pods of the attempt mount: those of the launcher, or else of this release."""
        return (self.launcher.secret_names if self.launcher else ()) or names.secret_names(self.job)

    @cached_property
    def pods_of_other_spec(self) -> tuple[Pod, ...]:
        """Pods that the attempt cannot use, because they were created from another spec."""
        return tuple(pod for pod in self.observed.pods if not pod.is_terminating and pod.has_other_spec(self.spec_hash))

    @cached_property
    def workers_of_other_release(self) -> tuple[Pod, ...]:
        """Workers with keys and start scripts of another release of the operator, which do not match the launcher's."""
        workers = (pod for pod in self.workers.values() if not pod.is_terminating)
        return tuple(pod for pod in workers if pod.secret_names not in ((), self.secret_names))

    @cached_property
    def unreachable_workers(self) -> dict[int, Pod]:
        """Workers that the failed launcher, of any attempt, could not reach, by index."""
        launcher = self.observed.launcher
        if launcher is None or launcher.phase != "Failed" or launcher.termination is None:
            return {}
        hosts, reason = unreachable_hosts(launcher.termination), termination_reason(launcher.termination)
        has_no_ssh = reason is not None and reason[0] is Reason.SSH_UNAVAILABLE
        return {
            index: pod
            for index, pod in sorted(self.workers.items())
            if pod.is_active and pod.attempt <= launcher.attempt
            if pod.address in hosts or (has_no_ssh and pod.has_unready_node)
        }

    @cached_property
    def unreported_workers(self) -> dict[int, Pod]:
        """Workers that had ended when the launcher failed, and whose end no kubelet has reported yet, by index."""
        launcher = self.launcher
        if launcher is None or launcher.phase != "Failed" or launcher.termination is None:
            return {}
        hosts = ended_hosts(launcher.termination)
        workers = ((index, pod) for index, pod in sorted(self.workers.items()) if pod.address in hosts)
        return {index: pod for index, pod in workers if pod.is_active and not pod.is_terminating}

    @cached_property
    def deleted_workers(self) -> dict[int, Pod]:
        """Workers deleted since the last reconciliation that have no replacement yet, by index."""
        indices = self.job.spec.worker_indices
        workers = (pod for pod in self.observed.deleted_pods if pod.role is Role.WORKER and pod.index in indices)
        return {pod.index: pod for pod in workers if pod.index not in self.workers}

    @cached_property
    def has_pods(self) -> bool:
        """Whether pods exist that are not being deleted."""
        return any(not pod.is_terminating for pod in self.observed.pods)

    @cached_property
    def queue(self) -> Queue | None:
        """The queue that must admit the job; None if it needs none."""
        return self.observed.queue if self.observed.queue and self.observed.queue.name else None

    @cached_property
    def has_quota(self) -> bool:
        """Whether pods may run: the job needs no queue, or its Workload is admitted.

        A Workload that an administrator holds, or that is for another spec of the job, allows no new pods, and neither
        do pods of another Workload, which end first. Kueue ends the pods of a Workload that is held while they run. The
        reservation of a Workload is cleared only when no pod is left.
        """
        if self.queue is None:
            return True
        workload = self.queue.workload
        if workload is None or not workload.is_admitted:
            return False
        if uids := {pod.workload_uid for pod in self.observed.pods}:
            return uids == {workload.uid}
        is_for_job = workload.is_prebuilt or workload.spec_hash == names.spec_hash(self.job)
        return workload.is_active and is_for_job

    @property
    def stored_reason(self) -> tuple[str, str] | None:
        """Reason and message that the last outcome gave Ready, also if an error of the operator has replaced them."""
        conditions = self.job.status.conditions
        ready = self.job.status.condition(ConditionType.READY)
        if ready and ready.reason == Reason.RECONCILE_ERROR:
            others = (each for each in conditions if each.status == "True" and each.type is not ConditionType.READY)
            ready = next(others, None)
        return (ready.reason, ready.message) if ready else None

    @cached_property
    def deadline(self) -> datetime | None:
        """When activeDeadlineSeconds is over; active time before a suspension counts."""
        seconds, status = self.job.spec.run_policy.active_deadline_seconds, self.job.status
        return self.start_time + timedelta(seconds=seconds - status.active_seconds) if seconds else None

    @cached_property
    def start_time(self) -> datetime:
        """When the job started, or was resumed; its first pod can be older than its first status."""
        status = self.job.status
        pods = self.observed.pods if status.phase is None else ()  # Others were there before a pause.
        return status.start_time or min((self.now, *(pod.created_at for pod in pods if pod.created_at)))

    @cached_property
    def scheduling_deadline(self) -> datetime | None:
        """When all pods must have a node; None if all have one, or if the time does not run.

        The time runs from the creation of the launcher, which each attempt creates again, or from when the job was
        last queued. A gang without any scheduled pod occupies no node: its time runs from its first scheduled pod.
        Nodes that are on their way are waited for.
        """
        created = self.launcher.created_at if self.launcher else None
        if created is None or self.is_scheduled or self.job.status.phase in (Phase.STARTING, Phase.RUNNING):
            return None
        queued = self.job.status.condition(ConditionType.QUEUED)
        is_queued = (
            queued is not None and queued.status == "True" and is_credible(queued.last_transition_time, self.now)
        )
        start = max(created, queued.last_transition_time) if queued and is_queued else created
        if self.job.spec.scheduling.gang is not Gang.NONE:
            times = [pod.scheduled_at or start for pod in self.observed.pods if pod.node and pod.is_active]
            if not times:
                return None
            start = max(start, min(times))
        deadline = start + timedelta(seconds=self.job.spec.scheduling.timeout_seconds)
        return max(deadline, self.coming_nodes.until) if self.coming_nodes else deadline

    @cached_property
    def is_scheduling_overdue(self) -> bool:
        """Whether the scheduling deadline is over."""
        return self.scheduling_deadline is not None and self.now >= self.scheduling_deadline

    @cached_property
    def start_deadline(self) -> datetime | None:
        """When the ranks must run: counted from when the last pod of the attempt got its node; None if one has none."""
        if self.launcher is None or not self.is_scheduled:
            return None
        pods = [pod for pod in (self.launcher, *self.workers.values()) if pod.node and not pod.is_terminating]
        scheduled_at = max(pod.scheduled_at or pod.created_at or self.now for pod in pods)
        return scheduled_at + timedelta(seconds=self.job.spec.start_timeout_seconds)

    @cached_property
    def coming_nodes(self) -> ComingNodes | None:
        """The nodes that are on their way, as far as this is known."""
        event, waiting = self.observed.autoscaler_event, self.observed.pod_awaiting_node
        if event and waiting:
            return ComingNodes(event.at, event.message) if event.adds_nodes else None
        unscheduled = (pod for pod in self.observed.pods if not pod.node and pod.is_active and not pod.is_terminating)
        pod = next((pod for pod in unscheduled if pod.provisioning_request), None)
        if pod is None or pod.created_at is None:
            return None
        return ComingNodes(pod.created_at, f"ProvisioningRequest {pod.provisioning_request} is provisioned")

    @cached_property
    def is_scheduled(self) -> bool:
        """Whether all pods of the attempt exist and have a node."""
        pods = [pod for pod in (self.launcher, *self.workers.values()) if pod and not pod.is_terminating]
        scheduled = sum(bool(pod.node) and pod.is_active for pod in pods)
        launcher = self.launcher
        if launcher is None or launcher.is_terminating or not launcher.node or not launcher.is_active:
            return False
        if self.job.spec.elastic and self.job.status.phase is Phase.STARTING:
            return True  # The number of workers can already change.
        # An elastic job starts with fewer workers if the scheduler has reported that it has no node for the others.
        unschedulable = sum(bool(pod.unschedulable_message) for pod in pods)
        minimum, desired = self.job.spec.min_workers, len(self.job.spec.worker_indices)
        return scheduled > minimum and scheduled + unschedulable == desired + 1

    @cached_property
    def terminating_pod(self) -> Pod | None:
        """The terminating pod with a name of the job that has the oldest deletion timestamp."""
        indices = self.job.spec.worker_indices
        pods = (*self.observed.pods, *self.observed.stale_owner_pods)
        terminating = (pod for pod in pods if pod.deletion_timestamp)
        named = (pod for pod in terminating if pod.role is Role.LAUNCHER or pod.index in indices)
        return min(named, key=lambda pod: (pod.deletion_timestamp, pod.name), default=None)

    @cached_property
    def unscheduled_phase(self) -> Phase:
        """Phase while not all pods have a node."""
        return Phase.RESTARTING if self.job.status.phase is Phase.RESTARTING else Phase.QUEUED

    @cached_property
    def startup_phase(self) -> Phase:
        """Phase while pods start."""
        return Phase.STARTING if self.is_scheduled else self.unscheduled_phase

    @cached_property
    def hosts(self) -> tuple[Pod, ...]:
        """The pods on which ranks can run, in the order of their indices.

        A pod has an address before its init containers run and its image is pulled, which can take longer than the
        launcher waits for ssh. It keeps the address when its node is off; ranks that run may continue there, because
        the node may only have lost its connection to the API server.
        """
        started = [pod for _, pod in sorted(self.workers.items()) if not pod.has_pending_container]
        reachable = [pod for pod in started if not pod.has_unready_node or self.is_resizable]
        # The launcher completes its own preparation before it reads its hosts.
        prepared = [pod for pod in reachable if pod.is_ready or not self.job.spec.preparation]
        if self.launcher and self.job.spec.launcher.as_worker:
            prepared.insert(0, self.launcher)
        return tuple(pod for pod in prepared if pod.address and pod.is_active and not pod.is_terminating)

    @cached_property
    def is_resizable(self) -> bool:
        """Whether workers of the current attempt can join and leave: the job is elastic, and its ranks run."""
        return self.job.spec.elastic is not None and self.job.status.phase is Phase.RUNNING

    @cached_property
    def gives_up_pods(self) -> bool:
        """Whether a refusal lets the job have no pods; the ranks of an elastic job continue with those that it has."""
        refusal = self.observed.refusal
        return refusal is not None and not refusal.keeps_pods and not self.is_resizable

    @cached_property
    def worker_deadline(self) -> datetime | None:
        """When an elastic job with fewer workers than elastic.minReplicas fails; None if it has enough."""
        prepared = self.job.status.condition(ConditionType.PREPARED)
        if not self.is_resizable or len(self.hosts) >= self.job.spec.min_workers or prepared is None:
            return None
        start = self.now if prepared.status == "True" else prepared.last_transition_time
        return start + timedelta(seconds=self.job.spec.scheduling.timeout_seconds)
