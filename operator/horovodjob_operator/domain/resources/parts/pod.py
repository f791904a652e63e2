"""What the launcher and the workers have in common."""

from typing import Any

from horovodjob.api.base import api_fields
from horovodjob.api.constants import GPU_RESOURCE, KUEUE_PREFIX, PodSecurity, Role
from horovodjob.api.job import HorovodJob
from horovodjob.api.pod_fields import Resources
from horovodjob_operator.domain import names
from horovodjob_operator.domain.resources.parts.environment import environment
from horovodjob_operator.domain.resources.parts.metadata import owner_reference
from horovodjob_operator.domain.resources.parts.placement import add_membership, node_selector, selects_pool
from horovodjob_operator.domain.resources.parts.storage import volume_mounts, volumes
from horovodjob_operator.errors import InvalidJob
from horovodjob_operator.start_scripts import START

# The largest failureThreshold: a startup probe never ends the container.
UNLIMITED_FAILURES = 2147483647
GPU_TOLERATIONS = (
    {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"},
    {"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"},
)
# Neither the cluster autoscaler nor Karpenter may remove the node of a running job to save nodes. Both ignore pods that
# have ended.
POD_ANNOTATIONS = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
    "sidecar.istio.io/inject": "false",
}
# Kueue reads these annotations from pods too.
TOPOLOGY_PREFIX = f"{KUEUE_PREFIX}podset-"


def start_command(script: str, scripts_secret: str = names.SCRIPTS_SECRET) -> list[str]:
    """The command that verifies the start scripts in the Secret and runs one of them."""
    path, digest = f"{names.SECRET_DIRECTORY}/{script}", names.scripts_digest(scripts_secret)
    return ["/bin/sh", "-c", START, digest, path] if digest else ["/bin/sh", path]


def preparation_arguments(job: HorovodJob) -> list[str]:
    """First argument of a pod that hosts ranks, if the job has a preparation."""
    return [job.spec.preparation.command] if job.spec.preparation else []


def gpu_resources(job: HorovodJob, resources: Resources | None) -> dict[str, Any]:
    """The resources of a container that hosts ranks, with the GPUs of a worker."""
    fields = api_fields(resources)
    if job.spec.worker.gpus:
        gpus = {GPU_RESOURCE: job.spec.worker.gpus}
        fields["limits"] = gpus | fields.get("limits", {})
    return fields


def build_container(job: HorovodJob, role: Role) -> dict[str, Any]:
    """The main container of a pod, without what only one of the roles has."""
    spec = job.spec
    if not spec.image:
        raise InvalidJob("spec.image is empty, and the operator has no default image: set spec.image")
    container: dict[str, Any] = {
        "name": role.value,
        "image": spec.image,
        "env": environment(job, role),
        "volumeMounts": volume_mounts(job, role),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if spec.image_pull_policy:
        container["imagePullPolicy"] = spec.image_pull_policy
    if spec.env_from:
        container["envFrom"] = list(spec.env_from)
    if spec.pod_security is PodSecurity.RESTRICTED:
        container["securityContext"] = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    return container


def build_pod(
    job: HorovodJob,
    role: Role,
    name: str,
    container: dict[str, Any],
    labels: dict[str, str],
    secret_names: tuple[str, ...] = (),
) -> dict[str, Any]:
    """A pod with one container, without what only one of the roles has."""
    spec = job.spec
    topology = {key: text for key, text in job.metadata.annotations.items() if key.startswith(TOPOLOGY_PREFIX)}
    tolerations = [api_fields(toleration) for toleration in spec.tolerations or ()]
    # In a pool of GPU nodes, which have a taint on AKS, the launcher tolerates it too.
    if spec.worker.gpus and (role is Role.WORKER or spec.launcher.as_worker or selects_pool(job, role)):
        tolerations += [dict(toleration) for toleration in GPU_TOLERATIONS]
    pod_spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": spec.service_account_name is not None,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": volumes(job, role, secret_names),
        "tolerations": tolerations,
        "nodeSelector": node_selector(job, role),
    }
    if spec.network.service:
        pod_spec |= {"hostname": name, "subdomain": job.metadata.name}
    if spec.priority_class_name:
        pod_spec["priorityClassName"] = spec.priority_class_name
    if spec.service_account_name:
        pod_spec["serviceAccountName"] = spec.service_account_name
    if spec.image_pull_secrets:
        pod_spec["imagePullSecrets"] = [api_fields(reference) for reference in spec.image_pull_secrets]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": job.metadata.namespace,
            "labels": labels,
            "annotations": topology | dict(POD_ANNOTATIONS),
            "ownerReferences": [owner_reference(job)],
        },
        "spec": pod_spec,
    }
    add_membership(pod, job)
    return pod
