"""What to do about a job, as values: which objects to create, change and delete, and when to reconcile again. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from horovodjob.api.constants import CleanPodPolicy, Gang, Phase, Role
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain import names
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.outcome import Outcome
from horovodjob_operator.domain.pods.attempt_pods import (
    hostfile_content,
    is_launcher_missing,
    is_secret_missing,
    max_waiting_pods,
    missing_workers,
    must_publish_hosts,
    pod_names,
    stale_pod_names,
    unreachable_worker_names,
    worker_creation_at,
)
from horovodjob_operator.domain.pods.observed import Observed, Refusal
from horovodjob_operator.domain.pods.pod import Pod
from horovodjob_operator.kueue.pod_admission import Admission

# The label selector of a deletion contains their indices.
MAX_KEPT_WORKERS = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """Effects on the cluster. Each is idempotent, so the next reconciliation completes one that was interrupted."""

    create_secrets: bool = False
    """Creates the Secret with the keys of the job, if it does not exist."""
    create_scripts: bool = False
    """Creates the Secret with the start scripts, if it does not exist."""
    secret_names: tuple[str, ...] = ()
    """Names of the Secrets that pods of this attempt mount."""
    spec_hash: str = ""
    """Hash of the spec that pods of this attempt are created from."""
    create_workers: tuple[int, ...] = ()
    max_waiting_pods: int | None = None
    """How many pods of the job can wait for the scheduler while pods of other jobs do; None if any number."""
    create_launcher: bool = False
    hosts: str = ""
    """Hosts for the launcher that is created, or for the existing one if `publish_hosts`."""
    publish_hosts: bool = False
    delete_all_pods: bool = False
    delete_workers: bool = False
    keep_workers: tuple[int, ...] = ()
    """Indices of the workers that `delete_workers` does not delete: they have ended, and their pods have the logs."""
    delete_unscheduled_pods: bool = False
    """Deletes the pods without a node: they have no log."""
    delete_pods: frozenset[str] = frozenset()
    """Names of single pods to delete."""
    stop_pods: frozenset[str] = frozenset()
    """Names of pods to keep with their logs, and whose containers are stopped."""
    delete_pod_groups: frozenset[Gang] = frozenset()
    """PodGroups of a job without pods: a group without pods can keep a place in the queue of its scheduler."""
    delete_job: bool = False
    """Deletes the HorovodJob; Kubernetes deletes the objects that it owns."""
    dry_run: bool = False
    """Creates nothing, and sends dry-run requests instead."""
    requeue_at: datetime | None = None
    admission: Admission | None = None
    """What the queue of the job adds to the pods."""

    @property
    def creates_pods(self) -> bool:
        """Whether the plan creates pods."""
        return self.create_launcher or bool(self.create_workers)

    def without_creations(self) -> Plan:
        """The plan for a job that may create no pods now."""
        return replace(
            self,
            create_secrets=False,
            create_scripts=False,
            create_workers=(),
            create_launcher=False,
        )


def plan_for(context: JobContext, outcome: Outcome | None) -> Plan:
    """What to do, given the facts and the outcome of the checks that the status of the job was derived from."""
    job, observed, now = context.job, context.observed, context.now
    if (observed.refusal and observed.refusal.is_unreadable) or (outcome and outcome.failure):
        return Plan()  # The status with the failure is written first, and the checks then have another outcome.
    if job.status.is_finished or outcome is None:
        return _plan_for_finished_job(job, observed, now)
    requeue_at = context.next_time(outcome.requeue_at, context.deadline, context.scheduling_deadline)
    match outcome.phase:
        case Phase.SUSPENDED:
            return Plan(delete_all_pods=_has_pods_to_delete(observed), delete_pod_groups=observed.pod_groups)
        case Phase.TERMINATING:
            return replace(_plan_to_stop(job, observed), requeue_at=context.next_time(outcome.requeue_at))
        case Phase.QUEUED if outcome.frees_nodes:
            return Plan(delete_all_pods=_has_pods_to_delete(observed), requeue_at=requeue_at)
        case Phase.QUEUED if outcome.is_waiting:
            delete = _has_pods_to_delete(observed)
            return Plan(delete_all_pods=delete, delete_pod_groups=observed.pod_groups, requeue_at=outcome.requeue_at)
        case _ if observed.refusal and context.gives_up_pods:
            if not outcome.deletes_pods:
                return Plan(requeue_at=requeue_at)  # The pods still have evidence about the end of the attempt.
            return _plan_for_refused_job(context, observed.refusal, requeue_at)
        case _:
            plan = _plan_for_attempt(context, context.next_time(requeue_at, observed.retry_at))
            return plan if outcome.creates_pods else plan.without_creations()


def _plan_for_refused_job(context: JobContext, refusal: Refusal, requeue_at: datetime | None) -> Plan:
    """Deletes the pods, and checks at times whether one object of each kind can be created now."""
    plan = Plan(delete_all_pods=_has_pods_to_delete(context.observed), requeue_at=requeue_at)
    if refusal.waits_in_line or refusal.retry_at is None or context.now < refusal.retry_at:
        return plan
    return replace(
        plan,
        dry_run=True,
        create_secrets=True,
        create_scripts=True,
        secret_names=names.secret_names(context.job),
        create_launcher=True,
        create_workers=tuple(context.job.spec.worker_indices[:1]),
    )


def _has_pods_to_delete(observed: Observed) -> bool:
    return any(not pod.is_terminating for pod in observed.pods)


def _has_only_terminating_pods(observed: Observed) -> bool:
    return bool(observed.pods or observed.stale_owner_pods) and not _has_pods_to_delete(observed)


def _plan_to_stop(job: HorovodJob, observed: Observed) -> Plan:
    """Ends the pods of the job, and keeps the logs that cleanPodPolicy does not give up.

    Workers that run are deleted, or stopped if no pod may be deleted. Pods that have ended stay with their logs.
    """
    if job.spec.run_policy.clean_pod_policy is CleanPodPolicy.NONE:
        return Plan(
            delete_unscheduled_pods=_has_unscheduled_pods(observed),
            stop_pods=_pods_to_stop(observed.pods),
            delete_pod_groups=observed.pod_groups,
        )
    running = [pod for pod in observed.pods if pod.is_active and not pod.is_terminating]
    kept = (pod for pod in observed.pods if not pod.is_active or pod.role is Role.LAUNCHER)
    ended = sorted(pod.index for pod in observed.pods if pod.role is Role.WORKER and not pod.is_active)
    return Plan(
        delete_workers=any(pod.role is Role.WORKER for pod in running),
        keep_workers=tuple(ended[:MAX_KEPT_WORKERS]),
        delete_pods=pod_names(pod for pod in running if pod.role is Role.LAUNCHER and not pod.node),
        stop_pods=_pods_to_stop(kept),
        delete_pod_groups=observed.pod_groups,
    )


def _has_unscheduled_pods(observed: Observed) -> bool:
    return any(pod.is_active and not pod.node and not pod.is_terminating for pod in observed.pods)


def _pods_to_stop(pods: Iterable[Pod]) -> frozenset[str]:
    """Pods with containers that run, the main container or sidecars, and that have not been requested to stop."""
    running = (pod for pod in pods if pod.node and (pod.is_active or pod.has_running_sidecars))
    return pod_names(pod for pod in running if not pod.is_terminating and not pod.is_stopping)


def _plan_for_finished_job(job: HorovodJob, observed: Observed, now: datetime) -> Plan:
    """Deletes pods according to cleanPodPolicy, and the job itself after ttlSecondsAfterFinished."""
    seconds, completed = job.spec.run_policy.ttl_seconds_after_finished, job.status.completion_time
    if seconds is None or completed is None:
        return _plan_to_clean_up(job, observed)
    expires = completed + timedelta(seconds=seconds)
    return Plan(delete_job=True) if now >= expires else replace(_plan_to_clean_up(job, observed), requeue_at=expires)


def plan_for_deleted_job(context: JobContext) -> Plan:
    """Deletes pods according to cleanPodPolicy when the program has ended, or if it has not started.

    A finalizer keeps the job, so Kubernetes does not delete its pods, and the nodes would not be free. A queue that
    evicts the job gets all of them.
    """
    launcher, observed, queue = context.launcher, context.observed, context.queue
    if queue and queue.workload and queue.workload.has_lost_quota:
        return Plan(delete_all_pods=_has_pods_to_delete(observed), delete_pod_groups=observed.pod_groups)
    if launcher and launcher.is_active and launcher.hosts and not launcher.is_terminating:
        return Plan()
    return _plan_to_clean_up(context.job, observed)


def _plan_to_clean_up(job: HorovodJob, observed: Observed) -> Plan:
    """Deletes pods according to cleanPodPolicy; every policy stops a launcher that still runs."""
    match job.spec.run_policy.clean_pod_policy:
        case CleanPodPolicy.ALL:
            delete = _has_pods_to_delete(observed)
            return Plan(delete_all_pods=delete, delete_pod_groups=observed.pod_groups)
        case CleanPodPolicy.RUNNING:
            return _plan_to_stop(job, observed)
        case CleanPodPolicy.NONE:
            # Workers that run stay as they are. A pod without a node would get one later.
            launcher = (observed.launcher,) if observed.launcher else ()
            return Plan(delete_unscheduled_pods=_has_unscheduled_pods(observed), stop_pods=_pods_to_stop(launcher))


def _plan_for_attempt(context: JobContext, requeue_at: datetime | None) -> Plan:
    """Creates the missing pods of the current attempt, and deletes pods that it cannot use."""
    job, observed = context.job, context.observed
    if unreachable := unreachable_worker_names(context):
        # Before the launcher, which is the evidence. If a node is off, they stay until it is back or deleted.
        return Plan(delete_pods=unreachable, requeue_at=requeue_at)
    hosts = hostfile_content(context)
    stale = stale_pod_names(context, hosts)
    # What the check pods_outdated has found concerns the attempt that it ended; this is about the one that follows.
    if outdated := context.pods_of_other_spec:
        # The PodGroup may be one for the size of the other spec.
        groups = observed.pod_groups
        return Plan(delete_pods=stale | pod_names(outdated), delete_pod_groups=groups, requeue_at=requeue_at)
    if others := context.workers_of_other_release:
        return Plan(delete_pods=stale | pod_names(others), requeue_at=requeue_at)
    if job.status.phase is Phase.RUNNING and not context.is_resizable:
        return Plan(delete_pods=stale, requeue_at=requeue_at)
    if job.spec.scheduling.gang is not Gang.NONE and _has_only_terminating_pods(observed):
        # They are still members of the group: if they counted, some of the new pods could be scheduled alone.
        return Plan(requeue_at=requeue_at)
    delayed = {index: at for index in missing_workers(context) if (at := worker_creation_at(context, index))}
    missing = tuple(index for index in missing_workers(context) if index not in delayed)
    if observed.refusal and observed.refusal.waits_in_line:
        missing = ()  # Workers that join an elastic job, when there is room in the quota for them.
    create_launcher = is_launcher_missing(context)
    create_secrets = create_launcher or (bool(missing) and not observed.pods) or is_secret_missing(context)
    return Plan(
        create_secrets=create_secrets,
        create_scripts=create_secrets and (is_secret_missing(context) or not observed.has_scripts),
        secret_names=context.secret_names,
        spec_hash=context.spec_hash,
        create_workers=missing,
        max_waiting_pods=max_waiting_pods(context),
        create_launcher=create_launcher,
        hosts=hosts,
        publish_hosts=must_publish_hosts(context, hosts),
        delete_pods=stale,
        requeue_at=context.next_time(requeue_at, *delayed.values()),
    )
