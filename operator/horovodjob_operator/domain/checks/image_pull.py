"""Image pulls: how long a job keeps its nodes while an image cannot be pulled, and what the user can do."""

import re
from datetime import datetime, timedelta

from horovodjob.api.constants import Reason
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.outcome import Failure, Outcome
from horovodjob_operator.domain.checks.scheduling import requeue_message, requeue_outcome
from horovodjob_operator.domain.observed import KubeletEventReason
from horovodjob_operator.domain.pod import ContainerWaiting, Pod


def image_pull_timeout(context: JobContext) -> Outcome | None:
    """An image could not be pulled in time: all pods are deleted, so that other jobs can use their nodes."""
    pod, spec = context.observed.pod_awaiting_image, context.job.spec
    if pod is None or context.now < _pull_deadline(context):
        return None
    message = (
        f"pod {pod.name} could not get image {spec.image} for scheduling.timeoutSeconds, "
        f"{spec.scheduling.timeout_seconds} s; {requeue_message(context)}"
    )
    return requeue_outcome(Failure(Reason.SCHEDULING_TIMEOUT, message, pod, is_disruption=True))


def image_unavailable(context: JobContext, pod: Pod, waiting: ContainerWaiting) -> Outcome:
    """The kubelet cannot get the image of a pod; it tries again."""
    remedy = _pull_secret_remedy(context)
    message = f"pod {pod.name} cannot get image {context.job.spec.image}: {remedy or waiting.message or waiting.reason}"
    return Outcome(
        context.startup_phase,
        Reason.IMAGE_PULL_FAILED,
        message,
        is_stalled=bool(remedy),
        blocked_pod=pod,
        requeue_at=_pull_deadline(context),
    )


def _pull_deadline(context: JobContext) -> datetime:
    """When the pods of the attempt lose their nodes because an image cannot be pulled."""
    status = context.job.status
    errors = (error for error in status.errors if error.attempt == status.attempt)
    first = next((error.time for error in errors if error.reason == Reason.IMAGE_PULL_FAILED), context.now)
    return first + timedelta(seconds=context.job.spec.scheduling.timeout_seconds)


def _pull_secret_remedy(context: JobContext) -> str:
    """Which Secret with credentials of a registry does not exist, and how to create it; empty if none is missing."""
    warning = context.observed.warning_message(KubeletEventReason.PULL_SECRET_MISSING)
    if not warning:
        return ""
    # (pkg/kubelet/kubelet_pods.go, getPullSecretsForPod)
    match = re.search(r"image pull secrets \((.+?)\)", warning)
    subject = f"Secret {match[1]} of imagePullSecrets" if match else "a Secret of imagePullSecrets"
    namespace = context.job.metadata.namespace
    return f"{subject} is not in namespace {namespace}; kubectl create secret docker-registry makes such a Secret"
