"""Suspension: runPolicy.suspend, and changes of the spec that require it."""

from horovodjob.api.constants import Phase, Reason
from horovodjob_operator.domain import names
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.outcome import Outcome
from horovodjob_operator.domain.pods.pod import Pod


def suspended(context: JobContext) -> Outcome | None:
    """The user or a queue requests that the job has no pods."""
    if context.job.spec.run_policy.suspend:
        message = "runPolicy.suspend is true: no pods until it is false"
        return Outcome(Phase.SUSPENDED, Reason.SUSPENDED_BY_USER, message)
    return None


def spec_changed(context: JobContext) -> Outcome | None:
    """Pods of the attempt have another spec: the job was suspended, changed and resumed between two passes."""
    job, attempt = context.job, context.job.status.attempt
    if job.metadata.generation == job.status.observed_generation:
        return (
            None  # Without a change, another release of the operator may have computed another hash of the same spec.
        )
    spec_hash = names.spec_hash(job)
    pods = (pod for pod in context.observed.pods if pod.attempt == attempt and not pod.is_terminating)
    if not any(has_other_spec(pod, spec_hash) for pod in pods):
        return None
    message = f"the job was suspended, changed and resumed: the pods of attempt {attempt} are replaced"
    return Outcome(Phase.SUSPENDED, Reason.SUSPENDED_BY_USER, message)


def has_other_spec(pod: Pod, spec_hash: str) -> bool:
    """Whether a pod is known to have been created from another spec."""
    return "" not in (pod.spec_hash, spec_hash) and pod.spec_hash != spec_hash
