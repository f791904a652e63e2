"""What the status says about a training that makes no progress. Pure."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from horovodjob.api.constants import ConditionType, Phase, Reason, Role
from horovodjob.api.job import HorovodJob
from horovodjob.api.status import Condition, JobError
from horovodjob_operator.domain.checks.outcome import Outcome
from horovodjob_operator.domain.failed_nodes import node_problems, nodes_of
from horovodjob_operator.domain.messages import MAX_MESSAGE_CHARACTERS
from horovodjob_operator.domain.pods.observed import Observed
from horovodjob_operator.domain.pods.pod import Pod
from horovodjob_operator.domain.silence import Silence
from horovodjob_operator.domain.stall_report import Stall

# So many restarts in a row after a deadline, without a step that no attempt before had reached, end the job.
MAX_RESTARTS_WITHOUT_STEP = 3


def current_stall(job: HorovodJob, observed: Observed) -> Stall | None:
    """The stall of the current attempt, as far as it was reported to this process."""
    report = observed.stall_report
    return report.stall if report and report.attempt == job.status.attempt else None


def blamed_pods(stall: Stall, pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """The pods with the ranks that the others wait for."""
    hosts = {each.host for each in stall.blamed}
    return tuple(pod for pod in pods if pod.name in hosts)


def blamed_pod(stall: Stall, pods: Iterable[Pod]) -> Pod | None:
    """The pod with the ranks that the others wait for; None if they are in several."""
    found = blamed_pods(stall, pods)
    return found[0] if len(found) == 1 == len({each.host for each in stall.blamed}) else None


def stall_message(stall: Stall, pods: Sequence[Pod]) -> str:
    """Since when no step is completed, which ranks cause that, and what the others do."""
    usual = f" (usual: {stall.usual_seconds:.2g} s)" if stall.usual_seconds else ""
    by_place: dict[tuple[str, str], list[int]] = {}
    for each in stall.blamed:
        by_place.setdefault((each.host, each.text), []).append(each.rank)
    parts = [
        f"{_ranks(ranks)}{_place(host, pods)}{': each' if len(ranks) > 1 else ''} {text}"
        for (host, text), ranks in by_place.items()
    ]
    if stall.others:
        parts.append(stall.others)
    return f"no step since {stall.since:%H:%M:%SZ}{usual}: {'; '.join(parts)}"[:MAX_MESSAGE_CHARACTERS]


def is_of_deputy(observed: Observed) -> bool:
    """Whether the newest report about a stall is not from rank 0."""
    return observed.stall_report is not None and observed.stall_report.is_deputy


def silence_message(found: Silence) -> str:
    """Since when rank 0 has not reported, and what can be the cause."""
    cause = "its process, its pod or the network to the operator has failed"
    node = f", and node {found.pod.node} does not report to Kubernetes" if found.pod.has_unready_node else ""
    return f"no report from rank 0{_place(found.pod.name, [found.pod])} since {found.since:%H:%M:%SZ}: {cause}{node}"


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def _place(host: str, pods: Iterable[Pod]) -> str:
    pod = next((pod for pod in pods if pod.name == host), None)
    if pod is None:
        return f" ({host})" if host else ""
    name = "the launcher" if pod.role is Role.LAUNCHER else f"worker {pod.index}"
    return f" ({name}, node {pod.node})" if pod.node else f" ({name})"


def progressing(job: HorovodJob, observed: Observed, outcome: Outcome, now: datetime) -> Condition | None:
    """The condition Progressing; None while nothing is known about the progress of the attempt."""
    old, attempt = job.status.condition(ConditionType.PROGRESSING), job.status.attempt
    failure = outcome.failure
    if failure and failure.reason == Reason.PROGRESS_DEADLINE_EXCEEDED:
        return _condition(job, "False", Reason.PROGRESS_DEADLINE_EXCEEDED, failure.message, now)
    if outcome.phase is not Phase.RUNNING:
        is_kept = old and old.reason == Reason.PROGRESS_DEADLINE_EXCEEDED and outcome.phase is not Phase.SUSPENDED
        return old if is_kept else None
    if stall := current_stall(job, observed):
        nodes = nodes_of(blamed_pods(stall, observed.pods) or observed.pods)
        silent = (silence_message(observed.silence),) if observed.silence and not is_of_deputy(observed) else ()
        problems = node_problems(nodes, observed.node_conditions).values()
        parts = (stall_message(stall, observed.pods), *silent, *problems)
        return _condition(job, "False", Reason.TRAINING_STALLED, "; ".join(parts)[:MAX_MESSAGE_CHARACTERS], now)
    if observed.silence:
        return _condition(job, "Unknown", Reason.NO_REPORTS, silence_message(observed.silence), now)
    reports = (observed.stall_report, observed.progress_report)
    if any(report and report.attempt == attempt for report in reports):
        return _condition(job, "True", Reason.STEPS_COMPLETED, "the training completes steps", now)
    # A new process has no report yet. What an earlier one has written about this attempt is not news.
    return old if job.status.phase is Phase.RUNNING else None


def _condition(job: HorovodJob, status: str, reason: Reason, message: str, now: datetime) -> Condition:
    old, generation = job.status.condition(ConditionType.PROGRESSING), job.metadata.generation
    if old and (old.status, old.reason, old.message, old.observed_generation) == (status, reason, message, generation):
        return old
    return Condition(
        type=ConditionType.PROGRESSING,
        status=status,
        observed_generation=generation,
        last_transition_time=old.last_transition_time if old and old.status == status else now,
        reason=reason,
        message=message,
    )


def restarts_without_step(errors: Sequence[JobError]) -> int:
    """How many attempts in a row, up to the newest, ended at the deadline without a step that was new for the job.

    Another end between them, such as a disruption, says nothing about steps. An attempt without an error ends the row:
    a suspension has ended it.
    """
    newest = list({error.attempt: error for error in errors}.values())
    if not newest or newest[-1].reason != Reason.PROGRESS_DEADLINE_EXCEEDED:
        return 0
    steps: list[int] = []
    for number, error in enumerate(reversed(newest)):
        if error.attempt != newest[-1].attempt - number:
            break
        if error.reason == Reason.PROGRESS_DEADLINE_EXCEEDED:
            if error.steps is None:  # the program does not know which steps it does again
                break
            steps.append(error.steps)
    return next((n for n, step in enumerate(steps[:-1]) if step > max(steps[n + 1 :])), max(len(steps) - 1, 0))
