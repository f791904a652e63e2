"""Elastic jobs: ranks continue while workers join, leave and are lost."""

from collections.abc import Iterable
from datetime import timedelta

from horovodjob.api.constants import Reason
from horovodjob.api.status import MAX_ERRORS
from horovodjob_operator.domain import names
from horovodjob_operator.domain.checks.backoff import replacement_at, worker_disruptions
from horovodjob_operator.domain.checks.context import JobContext, is_credible
from horovodjob_operator.domain.checks.failure import worker_disruption, worker_failure
from horovodjob_operator.domain.checks.outcome import Failure
from horovodjob_operator.domain.checks.unresponsive_node_messages import overdue_pod_message
from horovodjob_operator.domain.messages import count_text, ordinal
from horovodjob_operator.domain.pods.pod import Pod

# A worker whose deletion was observed can be missing for this time before the launcher has read its new hosts.
DELETED_WORKER_SECONDS = 30


def workers_message(context: JobContext) -> str:
    """How many ranks and workers an elastic job has, and what prevents it from having more."""
    number, spec, refusal = len(context.hosts), context.job.spec, context.observed.refusal
    workers = count_text(number, "worker")
    overdue = overdue_pod_message(context, context.terminating_pod)
    obstacle = refusal.message if refusal else overdue or _replacement_message(context)
    if number < spec.min_workers:
        message = f"{workers} of the {spec.min_workers} that elastic.minReplicas requires: ranks wait"
    else:
        message = f"up to {count_text(number * spec.slots, 'rank')} run on {workers}"
        if number != spec.worker.replicas:
            message += f" of {spec.worker.replicas}"
    return f"{message}; {obstacle}" if obstacle else message


def _replacement_message(context: JobContext) -> str:
    """Which missing worker is replaced after a delay because its disruptions repeat, and when; empty if none is."""
    job = context.job
    for index in (index for index in job.spec.worker_indices if index not in context.workers):
        name = names.worker_name(job, index)
        number, at = worker_disruptions(job, name), replacement_at(job, name, context.now)
        if number > 1 and at and at > context.now:
            error = next(error for error in reversed(job.status.errors) if error.pod == name)
            row = f"after its {ordinal(number)} disruption in a row, {error.reason}: {error.message}"
            return f"worker {index} is replaced at {at:%H:%M:%SZ} {row}"
    return ""


def worker_losses(context: JobContext) -> tuple[Failure, ...]:
    """Lost workers that the status does not contain yet, at most as many as a status contains."""
    if not context.is_resizable:
        return ()
    losses = [
        worker_disruption(pod, index, pod.name) if pod.is_active else worker_failure(pod, index)
        for index, pod in sorted(context.workers.items())
        if (not pod.is_active or pod.is_terminating) and not _is_given_up(context, pod)
    ]
    losses += [
        worker_disruption(pod, index, pod.name)
        for index, pod in sorted(context.deleted_workers.items())
        if not _is_given_up(context, pod)
    ]
    losses += _unobserved_losses(context)
    return tuple(failure for failure in losses[:MAX_ERRORS] if not _is_reported(context, failure))


def _is_given_up(context: JobContext, pod: Pod) -> bool:
    """Whether the operator can have deleted the worker: before that, it takes the worker from the launcher's hosts."""
    hosts = context.launcher.hosts if context.launcher else ""
    is_host = any(line.split()[0] == pod.address for line in hosts.splitlines())
    return pod.is_terminating and not pod.is_evicted and not is_host


def _unobserved_losses(context: JobContext) -> Iterable[Failure]:
    """Hosts that the launcher still has, whose pods were deleted while the operator did not watch."""
    lines = (context.launcher.hosts if context.launcher else "").splitlines()
    addresses = {pod.address for pod in (*context.observed.pods, *context.observed.deleted_pods)}
    lost = (address for address in (line.split()[0] for line in lines) if address not in addresses)
    observed = context.workers | context.deleted_workers
    missing = (index for index in context.job.spec.worker_indices if index not in observed)
    for address, index in zip(lost, missing, strict=False):
        message, name = f"worker {index} at {address} is gone", names.worker_name(context.job, index)
        yield Failure(Reason.WORKER_LOST, message, pod_name=name, is_disruption=True)


def _is_reported(context: JobContext, failure: Failure) -> bool:
    errors = [error for error in context.job.status.errors if error.pod == failure.failed_pod]
    errors = [error for error in errors if is_credible(error.time, context.now)]
    if failure.pod:
        return any(error.time >= (failure.pod.created_at or error.time) for error in errors)
    start = context.now - timedelta(seconds=DELETED_WORKER_SECONDS)
    return any(error.time >= start or error.message == failure.message for error in errors)
