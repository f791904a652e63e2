"""Nodes that ended attempts of a job: which and why, what they report, and that further attempts avoid them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from horovodjob.api.constants import Reason
from horovodjob.api.job import HorovodJob
from horovodjob.api.status import MAX_FAILED_NODES, JobError
from horovodjob_operator.domain.checks.outcome import Failure
from horovodjob_operator.domain.messages import MAX_MESSAGE_CHARACTERS, count_text
from horovodjob_operator.domain.pods.pod import Pod

# So many attempts in a row that one node ended, and no other, are worth the attention of an administrator.
REPEATED_FAILURES = 3
MAX_NAMED_NODES = 3
# After these ends, the pods still run; after the others, those that the node concerns have ended or are deleted.
ENDS_WITH_RUNNING_PODS = (Reason.PROGRESS_DEADLINE_EXCEEDED, Reason.RANK_FAILED)


def failed_nodes(job: HorovodJob, errors: Iterable[JobError]) -> dict[str, JobError]:
    """The nodes that further attempts avoid, with the newest error of each."""
    if job.spec.scheduling.avoid_failed_nodes is False:
        return {}
    return {node: error for error in errors for node in error.failed_nodes}


def must_leave(job: HorovodJob, pod: Pod) -> bool:
    """Whether a running worker is from an attempt that it or its node ended, so that a new one replaces it.

    The new one can run on another node. On the same node it still replaces a worker without a running sshd.
    """
    if job.spec.scheduling.avoid_failed_nodes is False:
        return False
    errors = (error for error in job.status.errors if error.reason in ENDS_WITH_RUNNING_PODS)
    return any(pod.attempt <= error.attempt for error in errors if pod.node in error.failed_nodes or _is_of(error, pod))


def _is_of(error: JobError, pod: Pod) -> bool:
    """Whether an attempt ended because the other ranks waited for those of this pod."""
    return error.reason == Reason.PROGRESS_DEADLINE_EXCEEDED and error.pod == pod.name


def avoidance_text(job: HorovodJob, errors: Sequence[JobError]) -> str:
    """Which nodes the next attempt avoids and why; empty if there are none."""
    found = failed_nodes(job, errors)
    names = [f"{node} ({error.reason} in attempt {error.attempt})" for node, error in reversed(found.items())]
    more = len(names) - MAX_NAMED_NODES
    if more > 0:
        names[MAX_NAMED_NODES:] = [f"{count_text(more, 'other node')}"]
    return f"avoids node{'s' if len(found) > 1 else ''} {', '.join(names)}" if names else ""


def is_fault_of_node(pod: Pod) -> bool:
    """Whether the node of a disrupted pod is lost or does not report, or its kubelet has rejected the pod."""
    return pod.has_lost_node or pod.is_rejected or pod.has_unready_node or pod.disruption == "DeletionByTaintManager"


def nodes_of(pods: Iterable[Pod]) -> tuple[str, ...]:
    """The nodes of pods, as many as an error contains."""
    return tuple(dict.fromkeys(pod.node for pod in pods if pod.node))[:MAX_FAILED_NODES]


def blamed_nodes(blamed: Iterable[Pod], pods: Iterable[Pod]) -> tuple[str, ...]:
    """The nodes of blamed pods; none if the job has no other nodes, because then all nodes are equally suspect."""
    found = nodes_of(blamed)
    return found if set(nodes_of(pods)) - set(found) else ()


def node_problems(nodes: Iterable[str], conditions: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """What each of these nodes reports, if it reports a problem."""
    return {node: f"node {node} reports {', '.join(conditions[node])}" for node in nodes if conditions.get(node)}


def with_node_conditions(failure: Failure, pods: Iterable[Pod], conditions: Mapping[str, Sequence[str]]) -> Failure:
    """The failure with the problems of its nodes, which explain it; of all nodes if it names none."""
    nodes = failure.nodes or (nodes_of([failure.pod]) if failure.pod and failure.is_of_worker else nodes_of(pods))
    if not (problems := node_problems(nodes, conditions)):
        return failure
    text = "; ".join(problems.values())
    return replace(
        failure,
        message=f"{failure.message}; {text}"[:MAX_MESSAGE_CHARACTERS],
        nodes=tuple(dict.fromkeys((*failure.nodes, *problems)))[:MAX_FAILED_NODES],
        node_conditions=tuple(problems.values())[:MAX_FAILED_NODES],
        is_disruption=True,
    )


def repeated_node(errors: Sequence[JobError]) -> str:
    """The node that ended the newest attempts in a row, three or more, and shared none of them with another node."""
    newest = _newest_ends(errors)
    are_in_a_row = [error.attempt - newest[0].attempt for error in newest] == list(range(REPEATED_FAILURES))
    nodes = {error.failed_nodes for error in newest}
    if not are_in_a_row or len(nodes) != 1 or len(alone := nodes.pop()) != 1:
        return ""
    return alone[0]


def repeated_node_text(node: str, errors: Sequence[JobError]) -> str:
    """The sentence about a node that failed in three attempts in a row."""
    newest = _newest_ends(errors)
    reasons = ", ".join(dict.fromkeys(error.reason for error in newest))
    return (
        f"node {node} ended attempts {newest[0].attempt} to {newest[-1].attempt} ({reasons}) and no other node of the "
        f"job did: look at it, and cordon it with `kubectl cordon {node}`"
    )


def _newest_ends(errors: Sequence[JobError]) -> list[JobError]:
    """The newest error of each of the newest attempts."""
    return list({error.attempt: error for error in errors}.values())[-REPEATED_FAILURES:]
