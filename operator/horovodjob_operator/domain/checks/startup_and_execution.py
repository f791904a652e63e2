"""Startup, execution and completion: from pods with nodes to a program that has succeeded."""

from dataclasses import replace
from datetime import datetime, timedelta

from horovodjob.api.constants import ConditionType, Gang, Phase, Reason
from horovodjob.api.job import HorovodJob
from horovodjob.api.spec import MIN_START_SECONDS
from horovodjob_operator.domain.checks.backoff import MAX_DELAY_SECONDS
from horovodjob_operator.domain.checks.blocked_pod import BlockedPod, find_blocked_pod
from horovodjob_operator.domain.checks.context import JobContext, is_credible
from horovodjob_operator.domain.checks.elastic import worker_losses, workers_message
from horovodjob_operator.domain.checks.outcome import Failure, Outcome
from horovodjob_operator.domain.checks.scheduling import reschedule_message, reschedule_outcome
from horovodjob_operator.domain.checks.unresponsive_node_messages import overdue_at
from horovodjob_operator.domain.messages import count_text


def startup_timeout(context: JobContext) -> Outcome | None:
    """A pod could not start in time: all pods are deleted, so that other jobs can use their nodes."""
    blocked = find_blocked_pod(context)
    if blocked is None or context.now < _startup_deadline(context, blocked):
        return None
    message = (
        f"pod {blocked.pod.name} could not start for scheduling.timeoutSeconds, "
        f"{context.job.spec.scheduling.timeout_seconds} s: {blocked.cause}; {reschedule_message(context)}"
    )
    return reschedule_outcome(Failure(Reason.SCHEDULING_TIMEOUT, message, blocked.pod, is_disruption=True))


def pod_cannot_start(context: JobContext) -> Outcome | None:
    """The kubelet cannot start a pod, and tries again."""
    blocked = find_blocked_pod(context)
    if blocked is None:
        return None
    return Outcome(
        context.startup_phase,
        blocked.reason,
        blocked.message,
        is_stalled=blocked.is_stalled,
        blocked_pod=blocked.pod,
        requeue_at=_startup_deadline(context, blocked),
    )


def ranks_overdue(context: JobContext) -> Outcome | None:
    """All pods have a node, and the ranks do not start in time: the pods are deleted, whatever they wait for."""
    starting, deadline = _starting(context), context.start_deadline
    if starting is None or deadline is None or context.now < deadline or find_blocked_pod(context):
        return None  # A pod with a reported cause has a limit of its own.
    message = f"the ranks did not start for {_start_limit_text(context.job)}: {starting.message}"
    message += f"; {reschedule_message(context)}"
    return reschedule_outcome(Failure(Reason.SCHEDULING_TIMEOUT, message, is_disruption=True))


def pods_scheduled(context: JobContext) -> Outcome | None:
    """All pods have a node: images are pulled, workers are prepared and start to answer over ssh."""
    starting = _starting(context)
    return replace(starting, requeue_at=context.next_time(context.start_deadline)) if starting else None


def _starting(context: JobContext) -> Outcome | None:
    if not context.is_scheduled:
        return None
    if pod := next((pod for pod in context.workers.values() if pod.has_unready_node), None):
        message = f"waiting for node {pod.node} of pod {pod.name}, which does not report to Kubernetes"
        return Outcome(Phase.STARTING, Reason.WAITING_FOR_WORKERS, message)
    spec = context.job.spec
    unprepared = sum(not pod.is_ready for pod in context.workers.values()) + spec.launcher.as_worker
    if spec.preparation and unprepared:
        message = f"all pods have a node; {count_text(unprepared, 'worker')} not prepared yet"
        return Outcome(Phase.STARTING, Reason.PREPARATION_RUNNING, message)
    return Outcome(Phase.STARTING, Reason.WAITING_FOR_WORKERS, "all pods have a node; the workers start")


def _startup_deadline(context: JobContext, blocked: BlockedPod) -> datetime:
    """When the pods of the attempt lose their nodes: counted from its first error with this reason."""
    status = context.job.status
    errors = (error for error in status.errors if error.attempt == status.attempt)
    first = next((error.time for error in errors if error.reason == blocked.reason), context.now)
    if not is_credible(first, context.now):
        first = blocked.pod.created_at or context.now
    return first + timedelta(seconds=context.job.spec.scheduling.timeout_seconds)


def ranks_running(context: JobContext) -> Outcome | None:
    """The start script has made the launcher ready, so mpirun runs."""
    launcher, spec = context.launcher, context.job.spec
    if launcher is None or not launcher.is_active:
        return None
    if not launcher.is_ready and context.job.status.phase is not Phase.RUNNING:
        return None
    if spec.elastic:
        return Outcome(
            Phase.RUNNING,
            Reason.RANKS_RUNNING,
            workers_message(context),
            requeue_at=context.next_time(context.worker_deadline, overdue_at(context, context.terminating_pod)),
            worker_losses=worker_losses(context),
        )
    program = f"mpirun runs {count_text(spec.worker.replicas * spec.slots, 'rank')} on"
    if spec.launcher_command:
        program = "the launcher's command runs, with"
    workers = count_text(spec.worker.replicas, "worker")
    return Outcome(Phase.RUNNING, Reason.RANKS_RUNNING, f"{program} {workers}")


def launcher_succeeded(context: JobContext) -> Outcome | None:
    """The launcher of the current attempt has ended with exit code 0."""
    if context.launcher and context.launcher.phase == "Succeeded":
        return Outcome(Phase.SUCCEEDED, Reason.ALL_RANKS_SUCCEEDED, "all ranks ended with exit code 0", exit_code=0)
    return None


def _start_limit_text(job: HorovodJob) -> str:
    """The limit of JobContext.start_deadline, and the fields that set it."""
    spec = job.spec
    is_shortest = spec.scheduling.timeout_seconds < MIN_START_SECONDS
    start = "the shortest limit of a start" if is_shortest else "scheduling.timeoutSeconds"
    return f"{spec.start_timeout_seconds} s, {start}" + (" and preparation.timeoutSeconds" if spec.preparation else "")


def start_deadline(job: HorovodJob) -> datetime | None:
    """When the ranks of a Starting job should run at the latest, by its status; None in other phases, or if unknown."""
    scheduled_at = _scheduled_at(job) if job.status.phase is Phase.STARTING else None
    return scheduled_at + timedelta(seconds=job.spec.start_timeout_seconds) if scheduled_at else None


def _scheduled_at(job: HorovodJob) -> datetime | None:
    """When all pods of the attempt had a node, or a later time; None if that is unknown.

    The condition Queued changes when the phase Queued ends. A restart has no such phase: after its backoff, it gets its
    nodes within scheduling.timeoutSeconds or becomes Queued. A gang without nodes waits without a limit.
    """
    status, scheduling = job.status, job.spec.scheduling
    queued = status.condition(ConditionType.QUEUED)
    failures = [error.time for error in status.errors if error.attempt < status.attempt]
    if queued is None or not failures or failures[-1] < queued.last_transition_time:
        return queued.last_transition_time if queued else None
    if scheduling.gang is not Gang.NONE:
        return None
    return failures[-1] + timedelta(seconds=MAX_DELAY_SECONDS + scheduling.timeout_seconds)
