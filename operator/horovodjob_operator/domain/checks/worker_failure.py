"""Failures of workers: a container ended, the platform ended a pod, or the launcher cannot reach a pod."""

from collections.abc import Iterable

from horovodjob.api.constants import Phase, Reason
from horovodjob_operator.domain import names
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.disruption import disruption_failure
from horovodjob_operator.domain.checks.launcher_failure import is_evidence_complete
from horovodjob_operator.domain.checks.outcome import Failure
from horovodjob_operator.domain.messages import exit_code_text
from horovodjob_operator.domain.pods.pod import Pod
from horovodjob_operator.domain.pods.termination_message import termination_reason


def worker_failed(context: JobContext) -> Iterable[Failure]:
    """The container of a worker has ended; workers never end by themselves."""
    is_started = context.job.status.phase in (Phase.STARTING, Phase.RUNNING)
    if context.is_resizable:
        return
    for index, pod in sorted(context.workers.items()):
        if not pod.is_active and (is_started or pod.attempt == context.job.status.attempt):
            yield worker_failure(pod, index)


def worker_lost(context: JobContext) -> Iterable[Failure]:
    """A worker is terminating or deleted; once the hosts are published, another pod cannot replace it."""
    if context.launcher is None or not context.launcher.hosts or context.job.spec.elastic:
        return
    for index in context.job.spec.worker_indices:
        pod = context.workers.get(index)
        if pod is None or pod.is_terminating:
            name = names.worker_name(context.job, index)
            yield worker_disruption(pod or context.deleted_workers.get(index), index, name)


def worker_unreachable(context: JobContext) -> Iterable[Failure]:
    """The launcher ended because workers do not answer: their node is off, or the network does not reach them."""
    if is_evidence_complete(context) and context.unreachable_workers:
        workers = context.unreachable_workers.items()
        addresses = (f"worker {index} at {pod.address} on node {pod.node}" for index, pod in workers)
        message = f"the launcher cannot reach {', '.join(addresses)}"
        pod = next(iter(context.unreachable_workers.values()))
        yield Failure(Reason.NODE_LOST, message, pod, is_disruption=True, is_worker_loss=True)


def worker_failure(pod: Pod, index: int) -> Failure:
    """Why a worker that is not active any more ended."""
    if pod.is_out_of_memory:
        return Failure(Reason.WORKER_OUT_OF_MEMORY, f"worker {index} was killed: its memory limit is reached", pod)
    if pod.is_out_of_storage:
        return Failure(Reason.WORKER_LOST, f"worker {index} was evicted: {pod.message}", pod)
    if pod.is_disrupted:
        return worker_disruption(pod, index, pod.name)
    if pod.termination is None:
        cause = pod.message or pod.reason or "no reason given"
        return Failure(Reason.WORKER_LOST, f"worker {index} failed: {cause}", pod)
    reason = termination_reason(pod.termination)
    if reason and reason[0] is Reason.PREPARATION_FAILED:
        return Failure(Reason.PREPARATION_FAILED, f"worker {index} on node {pod.node}: {reason[1]}", pod)
    cause = reason[1] if reason else f"its container ended with {exit_code_text(pod.termination.exit_code)}"
    return Failure(Reason.WORKER_LOST, f"worker {index} was lost: {cause}", pod)


def worker_disruption(pod: Pod | None, index: int, name: str) -> Failure:
    """The loss of a worker that did not end by itself."""
    return disruption_failure(pod, f"worker {index}", Reason.WORKER_LOST, name, is_worker_loss=True)
