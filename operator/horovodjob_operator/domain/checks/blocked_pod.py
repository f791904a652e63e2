"""Pods that their kubelet cannot start: why, and what the user can do."""

import re
from dataclasses import dataclass

from horovodjob.api.constants import Reason
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.pods.observed import KubeletEventReason
from horovodjob_operator.domain.pods.pod import ContainerWaiting, Pod
from horovodjob_operator.domain.resources.parts import azure_files


@dataclass(frozen=True, slots=True)
class BlockedPod:
    """A pod with a node that cannot start. The kubelet tries again."""

    pod: Pod
    reason: Reason
    cause: str
    message: str
    """The pod and the cause."""
    is_stalled: bool = True


def find_blocked_pod(context: JobContext) -> BlockedPod | None:
    """The first pod that cannot start.

    A pod without its image or configuration says more than a pod whose volumes are not mounted.
    """
    waiting = (pod for pod in context.observed.pods if pod.waiting and pod.is_active and not pod.is_terminating)
    pod = min(waiting, key=lambda pod: pod.name, default=None)
    if pod is None or pod.waiting is None:
        return _without_volumes(context)
    return _without_image(context, pod, pod.waiting) if pod.waiting.is_image_error else _misconfigured(pod, pod.waiting)


def _without_image(context: JobContext, pod: Pod, waiting: ContainerWaiting) -> BlockedPod:
    remedy = _pull_secret_remedy(context)
    cause = f"cannot get image {context.job.spec.image}: {remedy or waiting.message or waiting.reason}"
    return BlockedPod(pod, Reason.IMAGE_PULL_FAILED, cause, f"pod {pod.name} {cause}", is_stalled=bool(remedy))


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


def _misconfigured(pod: Pod, waiting: ContainerWaiting) -> BlockedPod:
    cause = waiting.message or waiting.reason
    if "runAsNonRoot" in waiting.message:
        cause += "; the image runs as root or does not declare a user: give it a numeric USER, "
        cause += "or set spec.podSecurity to Baseline"
    return BlockedPod(pod, Reason.INVALID_SPEC, cause, f"pod {pod.name}: {cause}")


def _without_volumes(context: JobContext) -> BlockedPod | None:
    pod = context.observed.pod_awaiting_volumes
    warning = context.observed.warning_message(KubeletEventReason.MOUNT_FAILED)
    if pod is None or not warning:
        return None
    remedy = azure_files.mount_remedy(context.job, warning)
    cause = f"cannot mount its volumes: {warning}{f'; {remedy}' if remedy else ''}"
    return BlockedPod(pod, Reason.STORAGE_UNAVAILABLE, cause, f"pod {pod.name} {cause}")
