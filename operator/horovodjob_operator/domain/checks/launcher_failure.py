"""Failures of the launcher, and how long to wait for a worker that explains them."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from horovodjob.api.constants import Phase, Reason, Role
from horovodjob_operator.domain import names
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.disruption import disruption_failure
from horovodjob_operator.domain.checks.outcome import Failure
from horovodjob_operator.domain.messages import exit_code_text
from horovodjob_operator.domain.pods.pod import ContainerTermination, Pod
from horovodjob_operator.domain.pods.termination_message import termination_reason, unreachable_hosts

# mpirun can detect the death of a worker before the kubelet reports it, and the worker has the cause.
EVIDENCE_SECONDS = 2
# A killed rank or a worker that does not answer indicates a problem of a worker; kubelets of busy nodes report late.
WORKER_EVIDENCE_SECONDS = 10
# A common clock skew is worth the wait. A clock that is further ahead is wrong, and its times are not usable.
MAX_CLOCK_SKEW_SECONDS = 60


def launcher_lost(context: JobContext) -> Iterable[Failure]:
    """The launcher existed, and is terminating or deleted."""
    pod, status = context.launcher, context.job.status
    if status.phase not in (Phase.STARTING, Phase.RUNNING) or (pod and not pod.is_terminating):
        return
    deleted = (
        pod for pod in context.observed.deleted_pods if pod.role is Role.LAUNCHER and pod.attempt == status.attempt
    )
    name = names.launcher_name(context.job)
    yield disruption_failure(pod or next(deleted, None), "the launcher", Reason.LAUNCHER_FAILED, name)


def launcher_failed(context: JobContext) -> Iterable[Failure]:
    """The launcher has ended without success."""
    pod = context.launcher
    if pod is None or not is_evidence_complete(context):
        return
    if pod.is_out_of_storage:
        yield Failure(Reason.LAUNCHER_FAILED, f"the launcher was evicted: {pod.message}", pod)
    elif pod.is_disrupted:
        yield disruption_failure(pod, "the launcher", Reason.LAUNCHER_FAILED)
    elif pod.termination is None:
        cause = pod.message or pod.reason or "no reason given"
        yield Failure(Reason.LAUNCHER_FAILED, f"the launcher failed: {cause}", pod)
    else:
        yield _container_failure(context, pod, pod.termination)


def is_evidence_complete(context: JobContext) -> bool:
    """Whether the launcher has ended without success, and workers have had the time to report the cause."""
    pod = context.launcher
    if pod is None or pod.phase != "Failed":
        return False
    return pod.is_disrupted or context.now >= evidence_deadline(pod, context.now)


def evidence_deadline(launcher: Pod, now: datetime) -> datetime:
    """When the time for workers to report the cause of the launcher's failure is over."""
    end = launcher.termination
    if end is None or end.finished_at is None:
        return now
    indicates_worker = end.exit_code > 128 or unreachable_hosts(end)
    window = timedelta(seconds=WORKER_EVIDENCE_SECONDS if indicates_worker else EVIDENCE_SECONDS)
    if end.finished_at - now > timedelta(seconds=MAX_CLOCK_SKEW_SECONDS):
        return now  # The job must not wait for the time of a wrong clock.
    return end.finished_at + window


def _container_failure(context: JobContext, pod: Pod, end: ContainerTermination) -> Failure:
    if pod.is_out_of_memory:
        return Failure(Reason.LAUNCHER_FAILED, "the launcher was killed: its memory limit is reached", pod)
    if script_reason := termination_reason(end):
        reason, message = script_reason
        subject = f"the launcher on node {pod.node}: " if reason is Reason.PREPARATION_FAILED else ""
        return Failure(reason, f"{subject}{message}", pod, exit_code=end.exit_code)
    if end.container != Role.LAUNCHER or end.reason not in ("Error", "Completed"):
        cause = f"{end.reason or 'an error'}, {exit_code_text(end.exit_code)}"
        return Failure(Reason.LAUNCHER_FAILED, f"container {end.container} ended with {cause}", pod)
    program = "the launcher's command" if context.job.spec.launcher_command else "mpirun"
    message = f"{program} ended with {exit_code_text(end.exit_code)}"
    return Failure(Reason.RANK_FAILED, message, pod, exit_code=end.exit_code)
