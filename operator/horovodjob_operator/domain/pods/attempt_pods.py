"""The pods of the current attempt: which are missing, which cannot be used, and which are hosts. Pure."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from horovodjob.api.constants import Gang, Role
from horovodjob_operator.domain import names
from horovodjob_operator.domain.checks.backoff import replacement_at
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.failed_nodes import must_leave
from horovodjob_operator.domain.pods.observed import KubeletEventReason
from horovodjob_operator.domain.pods.pod import Pod
from horovodjob_operator.domain.resources.parts.hostfile import hostfile

# The default scheduler takes pods of equal priority in the order of their creation, so all pods of a large job would be
# ahead of those of a small job that arrives later. This number keeps the scheduler busy until the next reconciliation.
MAX_WAITING_FOR_SCHEDULER = 64
# A scheduler that waits for all pods of a job, or that reports no failed attempt, must not stop their creation.
PATIENCE = timedelta(seconds=3)


def pod_names(pods: Iterable[Pod]) -> frozenset[str]:
    """The names of pods."""
    return frozenset(pod.name for pod in pods)


def hostfile_content(context: JobContext) -> str:
    """One line a host, in the order of the indices; empty until the launcher can start with them.

    A job that is not elastic needs the addresses of all workers, and with `preparation` that all are prepared. An
    elastic job starts when each worker that has a node is a host: the others join later.
    """
    spec, required = context.job.spec, context.job.spec.worker.replicas
    if spec.elastic and context.launcher and context.launcher.hosts:
        required = 1
    elif spec.elastic and context.is_scheduled:
        required = max(sum(bool(pod.node) for pod in context.workers.values()), spec.min_workers)
    if len(context.hosts) < required:
        return ""
    return hostfile(context.hosts, spec.slots)


def must_publish_hosts(context: JobContext, hosts: str) -> bool:
    """Whether the launcher has no hosts yet, or other hosts than an elastic job has now."""
    launcher = context.launcher
    if not hosts or launcher is None or launcher.is_terminating or not launcher.is_active:
        return False
    return hosts != launcher.hosts if context.job.spec.elastic else not launcher.hosts


def unreachable_worker_names(context: JobContext) -> frozenset[str]:
    """Workers that the launcher of an earlier attempt could not reach."""
    if context.launcher:
        return frozenset()
    return pod_names(pod for pod in context.unreachable_workers.values() if not pod.is_terminating)


def stale_pod_names(context: JobContext, hosts: str) -> frozenset[str]:
    """Pods that the attempt cannot use: an old launcher, workers that have ended, and surplus workers."""
    launcher, attempt = context.observed.launcher, context.job.status.attempt
    old_launcher = (pod for pod in (launcher,) if pod and pod.attempt != attempt and not pod.is_terminating)
    # A worker of this attempt that ended is a failure. Only the ranks of an elastic job continue without it.
    ended_workers = (
        pod
        for pod in context.workers.values()
        if not pod.is_active and not pod.is_terminating and (pod.attempt != attempt or context.is_resizable)
    )
    on_failed_nodes = _workers_on_failed_nodes(context)
    return pod_names((*old_launcher, *ended_workers, *on_failed_nodes, *_surplus_workers(context, hosts)))


def missing_workers(context: JobContext) -> tuple[int, ...]:
    """Indices of the workers to create; a terminating pod of an earlier job can still have the name of one."""
    occupied = pod_names(context.observed.stale_owner_pods)
    return tuple(
        index
        for index in context.job.spec.worker_indices
        if index not in context.workers and names.worker_name(context.job, index) not in occupied
    )


def is_secret_missing(context: JobContext) -> bool:
    """Whether a kubelet reports that a Secret of a new attempt does not exist."""
    warning = context.observed.warning_message(KubeletEventReason.MOUNT_FAILED)
    return "not found" in warning and any(name in warning for name in names.secret_names(context.job))


def max_waiting_pods(context: JobContext) -> int | None:
    """How many pods of the job can wait for the scheduler while pods of other jobs do; None if any number."""
    waiting = (pod.created_at or context.now for pod in context.observed.pods if pod.waits_for_scheduler)
    is_patient = context.now < min(waiting, default=context.now) + PATIENCE
    return MAX_WAITING_FOR_SCHEDULER if is_patient and context.job.spec.scheduling.gang is Gang.NONE else None


def is_launcher_missing(context: JobContext) -> bool:
    """Whether a launcher can be created: no launcher of any attempt has its name, and no ranks run."""
    occupied = pod_names(context.observed.stale_owner_pods)
    is_free = context.observed.launcher is None and names.launcher_name(context.job) not in occupied
    return is_free and not context.is_resizable


def worker_creation_at(context: JobContext, index: int) -> datetime | None:
    """When a missing worker of an elastic job whose ranks run can be created; None if at once."""
    if not context.is_resizable:
        return None
    refusal = context.observed.refusal
    name = names.worker_name(context.job, index)
    times = (replacement_at(context.job, name, context.now), refusal.retry_at if refusal else None)
    return max((at for at in times if at and at > context.now), default=None)


def _workers_on_failed_nodes(context: JobContext) -> Iterable[Pod]:
    """Workers that were there when their node ended an attempt: new ones run elsewhere, if there is room."""
    if context.launcher or context.is_resizable:
        return ()
    workers = (pod for pod in context.workers.values() if pod.is_active and not pod.is_terminating)
    return (pod for pod in workers if must_leave(context.job, pod))


def _surplus_workers(context: JobContext, hosts: str) -> Iterable[Pod]:
    """Workers beyond the size of the job; the launcher first gets hosts without them, so that their ranks leave."""
    if must_publish_hosts(context, hosts):
        return ()
    workers = (pod for pod in context.observed.pods if pod.role is Role.WORKER and not pod.is_terminating)
    return (pod for pod in workers if pod.index not in context.job.spec.worker_indices)
