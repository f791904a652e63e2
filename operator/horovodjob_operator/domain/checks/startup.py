"""Startup: pods have nodes, and their containers start."""

from horovodjob.api.constants import Phase, Reason
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.image_pull import image_unavailable
from horovodjob_operator.domain.checks.outcome import Outcome
from horovodjob_operator.domain.messages import count_text
from horovodjob_operator.domain.observed import KubeletEventReason
from horovodjob_operator.domain.pod import ContainerWaiting, Pod
from horovodjob_operator.domain.resources import azure_files


def container_cannot_start(context: JobContext) -> Outcome | None:
    """The kubelet cannot start a container of a pod."""
    pod = min((pod for pod in context.observed.pods if pod.waiting), key=lambda pod: pod.name, default=None)
    if pod is None or pod.waiting is None:
        return None
    if pod.waiting.is_image_error:
        return image_unavailable(context, pod, pod.waiting)
    message = _configuration_message(pod, pod.waiting)
    return Outcome(context.startup_phase, Reason.INVALID_SPEC, message, is_stalled=True, blocked_pod=pod)


def volume_unavailable(context: JobContext) -> Outcome | None:
    """The kubelet cannot mount the volumes of a pod."""
    pod = context.observed.pod_awaiting_volumes
    warning = context.observed.warning_message(KubeletEventReason.MOUNT_FAILED)
    if pod is None or not warning:
        return None
    message = f"pod {pod.name} cannot mount its volumes: {warning}"
    if remedy := azure_files.mount_remedy(context.job, warning):
        message = f"{message}; {remedy}"
    return Outcome(context.startup_phase, Reason.STORAGE_UNAVAILABLE, message, is_stalled=True, blocked_pod=pod)


def pods_scheduled(context: JobContext) -> Outcome | None:
    """All pods have a node: images are pulled, workers are prepared and start to answer over ssh."""
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


def _configuration_message(pod: Pod, waiting: ContainerWaiting) -> str:
    message = f"pod {pod.name}: {waiting.message or waiting.reason}"
    if "runAsNonRoot" in waiting.message:
        message += "; the image runs as root or does not declare a user: give it a numeric USER, "
        message += "or set spec.podSecurity to Baseline"
    return message
