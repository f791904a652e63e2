"""Failure: why the current attempt cannot continue, whose fault that is, and whether the job restarts or fails."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from horovodjob.api.constants import OnWorkerLoss, Phase, Reason, Role
from horovodjob_operator.domain import names
from horovodjob_operator.domain.checks.backoff import disruption_text, disruptions_in_a_row, restart_delay
from horovodjob_operator.domain.checks.context import JobContext, is_credible
from horovodjob_operator.domain.checks.outcome import Failure, Outcome
from horovodjob_operator.domain.failed_nodes import (
    REPEATED_FAILURES,
    avoidance_text,
    blamed_nodes,
    is_fault_of_node,
    nodes_of,
    with_node_conditions,
)
from horovodjob_operator.domain.job_errors import errors_after
from horovodjob_operator.domain.messages import count_text, exit_code_text
from horovodjob_operator.domain.pods.pod import ContainerTermination, Pod
from horovodjob_operator.domain.pods.termination_message import termination_reason, unreachable_hosts
from horovodjob_operator.domain.program_output import (
    program_sentence,
    progress_deadline,
    rank_with_gpu_error,
    steps_of_deadline,
)
from horovodjob_operator.domain.stall import (
    MAX_RESTARTS_WITHOUT_STEP,
    blamed_pod,
    blamed_pods,
    current_stall,
    restarts_without_step,
    stall_message,
)

# mpirun can detect the death of a worker before the kubelet reports it, and the worker has the cause.
EVIDENCE_SECONDS = 2
# A killed rank or a worker that does not answer indicates a problem of a worker; kubelets of busy nodes report late.
WORKER_EVIDENCE_SECONDS = 10
# For a worker that is known to have ended: its kubelet will report why, unless the node is lost meanwhile.
REPORT_SECONDS = 120


def attempt_failed(context: JobContext) -> Outcome | None:
    """The current attempt cannot continue: the job restarts, or fails if its policy allows no restart."""
    failure = next((failure for check in FAILURE_CHECKS for failure in check(context)), None)
    if failure is None:
        return None
    status, policy = context.job.status, context.job.spec.run_policy
    limit = policy.backoff_limit
    if failure.reason is Reason.RANK_FAILED and failure.exit_code in context.job.spec.final_exit_codes:
        return _final_failure(context, failure)
    failure = _explained_by_nodes(context, failure)
    if failure.is_disruption and failure.is_worker_loss and policy.on_worker_loss is OnWorkerLoss.FAIL:
        message = f"{failure.message} (attempt {status.attempt}; runPolicy.onWorkerLoss is {policy.on_worker_loss})"
        return Outcome(Phase.FAILED, failure.reason, message, failure=failure)
    errors = errors_after(context.job, failure, context.now.replace(microsecond=0))
    if restarts_without_step(errors) >= MAX_RESTARTS_WITHOUT_STEP:  # says more than the limit, whose default is as many
        message = failure.description(f"{MAX_RESTARTS_WITHOUT_STEP} restarts in a row have completed no new step")
        return Outcome(Phase.FAILED, failure.reason, message, failure=failure, exit_code=failure.exit_code)
    if not failure.is_disruption and status.restarts >= limit:
        message = failure.description(f"attempt {status.attempt}", f"runPolicy.backoffLimit is {limit}")
        return Outcome(
            Phase.FAILED, Reason.BACKOFF_LIMIT_EXCEEDED, message, failure=failure, exit_code=failure.exit_code
        )
    message = _restart_message(context, failure)
    return Outcome(Phase.RESTARTING, failure.reason, message, failure=failure, exit_code=failure.exit_code)


def _explained_by_nodes(context: JobContext, failure: Failure) -> Failure:
    """The failure with the problems of its nodes.

    Then it does not count against the limit, except after three such ends in a row of attempts that have not lasted: a
    condition that stays True must not restart a program with an error without end.
    """
    status, observed = context.job.status, context.observed
    explained = with_node_conditions(failure, observed.pods, observed.node_conditions)
    if failure.is_disruption or disruptions_in_a_row(status.errors, status.restarts) < REPEATED_FAILURES:
        return explained
    return replace(explained, is_disruption=False)


def _final_failure(context: JobContext, failure: Failure) -> Outcome:
    """The program has ended with an exit code after which a restart is pointless."""
    if context.job.spec.run_policy.fail_on_exit_codes is None:
        cause = f"exit code {failure.exit_code} of the trainer is a wrong setting, which a restart does not change"
    else:
        cause = f"exit code {failure.exit_code} is in runPolicy.failOnExitCodes"
    message = failure.description(f"attempt {context.job.status.attempt}", cause)
    return Outcome(Phase.FAILED, failure.reason, message, failure=failure, exit_code=failure.exit_code)


def _restart_message(context: JobContext, failure: Failure) -> str:
    """Why the attempt ended, how often in a row that was a disruption, and when the next attempt starts."""
    status = context.job.status
    errors = errors_after(context.job, failure, context.now.replace(microsecond=0))
    restarts = status.restarts + (not failure.is_disruption)
    row = disruption_text(errors, restarts) if failure.is_disruption else ""
    avoidance = avoidance_text(context.job, errors)
    return (
        f"attempt {status.attempt} ended, {f'{row}, ' if row else ''}{failure.description()}; attempt "
        f"{status.attempt + 1} {f'{avoidance} and ' if avoidance else ''}starts at "
        f"{errors[-1].time + restart_delay(errors, restarts):%H:%M:%SZ}"
    )


def progress_deadline_exceeded(context: JobContext) -> Iterable[Failure]:
    """The watch of rank 0 ends the attempt, because no step was completed within the deadline."""
    stall = current_stall(context.job, context.observed)
    seconds = context.job.spec.run_policy.progress_deadline_seconds
    if stall and stall.is_over and seconds:
        pods = context.observed.pods
        message = f"{stall_message(stall, pods)} (runPolicy.progressDeadlineSeconds is {seconds})"
        pod, nodes = blamed_pod(stall, pods), blamed_nodes(blamed_pods(stall, pods), pods)
        yield Failure(Reason.PROGRESS_DEADLINE_EXCEEDED, message, pod, steps=stall.steps, nodes=nodes)


def evidence_pending(context: JobContext) -> Outcome | None:
    """The launcher has failed, and a worker may still report the cause: the state of the job stays."""
    launcher, status = context.launcher, context.job.status
    stored = context.stored_reason
    if launcher is None or launcher.phase != "Failed" or status.phase is None or stored is None:
        return None
    until = _evidence_deadline(context, launcher)
    return Outcome(status.phase, *stored, requeue_at=until)


def worker_failed(context: JobContext) -> Iterable[Failure]:
    """The container of a worker has ended; workers never end by themselves."""
    is_started = context.job.status.phase in (Phase.STARTING, Phase.RUNNING) or context.has_published_hosts
    if context.is_resizable:
        return
    for index, pod in sorted(context.workers.items()):
        if not pod.is_active and (is_started or pod.attempt == context.job.status.attempt):
            yield worker_failure(pod, index)


def worker_lost(context: JobContext) -> Iterable[Failure]:
    """A worker is terminating or deleted; once the hosts are published, another pod cannot replace it."""
    if not context.has_published_hosts or context.job.spec.elastic:
        return
    for index in context.job.spec.worker_indices:
        pod = context.workers.get(index)
        if pod is None or pod.is_terminating:
            name = names.worker_name(context.job, index)
            yield worker_disruption(pod or context.deleted_workers.get(index), index, name)


def worker_unreachable(context: JobContext) -> Iterable[Failure]:
    """The launcher ended because workers do not answer: their node is off, or the network does not reach them."""
    if _is_evidence_complete(context) and context.unreachable_workers:
        workers = context.unreachable_workers.items()
        addresses = (f"worker {index} at {pod.address} on node {pod.node}" for index, pod in workers)
        message = f"the launcher cannot reach {', '.join(addresses)}"
        pod, nodes = next(iter(context.unreachable_workers.values())), nodes_of(context.unreachable_workers.values())
        yield Failure(Reason.NODE_LOST, message, pod, is_disruption=True, is_worker_loss=True, nodes=nodes)


def worker_unreported(context: JobContext) -> Iterable[Failure]:
    """The launcher ended because a worker had ended, and the kubelet of its node has not reported why."""
    if _is_evidence_complete(context):
        for index, pod in context.unreported_workers.items():
            message = f"worker {index} has ended, and its node {pod.node} has reported no reason for {REPORT_SECONDS} s"
            nodes = nodes_of([pod])
            yield Failure(Reason.WORKER_LOST, message, pod, is_disruption=True, is_worker_loss=True, nodes=nodes)


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
    return _disruption_failure(pod, f"worker {index}", Reason.WORKER_LOST, name, is_worker_loss=True)


def too_few_workers(context: JobContext) -> Iterable[Failure]:
    """The job has had fewer workers than elastic.minReplicas for scheduling.timeoutSeconds."""
    deadline, spec = context.worker_deadline, context.job.spec
    if deadline and context.now >= deadline:
        message = (
            f"{count_text(len(context.hosts), 'worker')} of the {spec.min_workers} that elastic.minReplicas requires"
        )
        message += f" for {spec.scheduling.timeout_seconds} s, scheduling.timeoutSeconds"
        yield Failure(Reason.WORKER_LOST, message, is_disruption=True, is_worker_loss=True)


def launcher_lost(context: JobContext) -> Iterable[Failure]:
    """The launcher existed, and is terminating or deleted."""
    pod, status = context.launcher, context.job.status
    if status.phase not in (Phase.STARTING, Phase.RUNNING) or (pod and not pod.is_terminating):
        return
    deleted = (
        pod for pod in context.observed.deleted_pods if pod.role is Role.LAUNCHER and pod.attempt == status.attempt
    )
    name = names.launcher_name(context.job)
    yield _disruption_failure(pod or next(deleted, None), "the launcher", Reason.LAUNCHER_FAILED, name)


def launcher_failed(context: JobContext) -> Iterable[Failure]:
    """The launcher has ended without success."""
    pod = context.launcher
    if pod is None or not _is_evidence_complete(context):
        return
    if pod.is_out_of_storage:
        yield Failure(Reason.LAUNCHER_FAILED, f"the launcher was evicted: {pod.message}", pod)
    elif pod.is_disrupted:
        yield _disruption_failure(pod, "the launcher", Reason.LAUNCHER_FAILED)
    elif pod.termination is None:
        cause = pod.message or pod.reason or "no reason given"
        yield Failure(Reason.LAUNCHER_FAILED, f"the launcher failed: {cause}", pod)
    else:
        yield _container_failure(context, pod, pod.termination)


def _is_evidence_complete(context: JobContext) -> bool:
    """Whether the launcher has ended without success, and workers have had the time to report the cause."""
    pod = context.launcher
    if pod is None or pod.phase != "Failed":
        return False
    return pod.is_disrupted or context.now >= _evidence_deadline(context, pod)


def _evidence_deadline(context: JobContext, launcher: Pod) -> datetime:
    """When the time for workers to report the cause of the launcher's failure is over."""
    end, now = launcher.termination, context.now
    if end is None or end.finished_at is None:
        return now
    indicates_worker = end.exit_code > 128 or unreachable_hosts(end)
    window = timedelta(seconds=WORKER_EVIDENCE_SECONDS if indicates_worker else EVIDENCE_SECONDS)
    if context.unreported_workers:
        window = timedelta(seconds=REPORT_SECONDS)
    if not is_credible(end.finished_at, now):
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
    if found := progress_deadline(end.message):
        return _logged_deadline(context, pod, end, found)
    program = "the launcher's command" if context.job.spec.launcher_command else "mpirun"
    message = f"{program} ended with {exit_code_text(end.exit_code)}"
    sentence = program_sentence(end.message, is_killed=end.exit_code > 128)
    nodes = _nodes_with_gpu_error(context, end.message)
    return Failure(Reason.RANK_FAILED, message, pod, exit_code=end.exit_code, sentence=sentence, nodes=nodes)


def _logged_deadline(context: JobContext, launcher: Pod, end: ContainerTermination, sentence: str) -> Failure:
    """The watch has ended the attempt, and its report has not arrived, such as because there was no operator then."""
    pods, words = context.observed.pods, set(re.findall(r"[\w.-]+", sentence))
    blamed = [pod for pod in pods if pod.name in words]
    return Failure(
        Reason.PROGRESS_DEADLINE_EXCEEDED,
        sentence,
        blamed[0] if len(blamed) == 1 else launcher,
        exit_code=end.exit_code,
        steps=steps_of_deadline(sentence),
        nodes=blamed_nodes(blamed, pods),
    )


def _nodes_with_gpu_error(context: JobContext, log: str) -> tuple[str, ...]:
    """The node of the rank that mpirun names, if its GPU or its driver has failed."""
    rank = rank_with_gpu_error(log)
    index = None if rank is None else rank // context.job.spec.slots
    pod = context.workers.get(index) if index is not None else None
    return blamed_nodes([pod], context.observed.pods) if pod else ()


def _disruption_failure(
    pod: Pod | None, subject: str, deletion_reason: Reason, name: str = "", *, is_worker_loss: bool = False
) -> Failure:
    """The disruption of a pod: an eviction if the platform reports one, else a deletion."""
    reason, message = _reason_and_message(pod, subject, deletion_reason)
    nodes = nodes_of([pod]) if pod and is_fault_of_node(pod) else ()
    return Failure(reason, message, pod, name, is_disruption=True, is_worker_loss=is_worker_loss, nodes=nodes)


def _reason_and_message(pod: Pod | None, subject: str, deletion_reason: Reason) -> tuple[Reason, str]:
    if pod and pod.has_lost_node:
        return Reason.NODE_LOST, f"{subject} was lost with its node {pod.node}, which no longer exists"
    if pod and pod.is_rejected:
        return Reason.EVICTED, f"{subject} was rejected by node {pod.node}: {pod.message or pod.reason}"
    if pod and pod.is_evicted and (cause := pod.message or pod.disruption or pod.reason):
        node = f" from node {pod.node}" if pod.node else ""
        return Reason.EVICTED, f"{subject} was evicted{node}: {cause}"
    return deletion_reason, f"{subject} was deleted"


FAILURE_CHECKS: tuple[Callable[[JobContext], Iterable[Failure]], ...] = (
    # The watch kills rank 0, and with it mpirun: what follows has this cause.
    progress_deadline_exceeded,
    # Workers precede the launcher: mpirun fails when a worker does, and the worker has the cause.
    worker_failed,
    worker_lost,
    too_few_workers,
    launcher_lost,
    # The launcher names the workers that it cannot reach, which explains its own exit code.
    worker_unreachable,
    worker_unreported,
    launcher_failed,
)
