"""The launcher and the workers of a job."""

from typing import Annotated, Any

from pydantic import Field

from horovodjob.api.base import Model, open_object
from horovodjob.api.pod_fields import Resources

PodTemplate = Annotated[
    dict[str, Any],
    open_object({"metadata": "Labels and annotations of the pod.", "spec": "Fields of the spec of a pod."}),
]


class RolePods(Model):
    """Fields that launcher and workers have in common."""

    resources: Resources | None = Field(None, description="Resource requests and limits of the container.")
    template: PodTemplate | None = Field(
        None,
        description="A pod template (metadata.labels, metadata.annotations, spec) that is merged into the generated "
        "pod. Items of containers, volumes, env, volumeMounts and tolerations are merged by name or key; null removes "
        "a field. It cannot set the start command and restartPolicy.",
    )


class Worker(RolePods):
    """The pods that run the ranks."""

    replicas: int = Field(1, ge=1, le=10000, description="Number of worker pods.")
    gpus: int = Field(1, ge=0, description="GPUs (nvidia.com/gpu) per worker; 0 for CPU only.")
    slots: int | None = Field(
        None, ge=1, le=256, description="Ranks (processes) per worker; default one per GPU, at least one."
    )


class Launcher(RolePods):
    """The pod that runs mpirun. By default it requests 100m CPU and 256Mi memory, and more for many workers."""

    as_worker: bool = Field(
        False,
        description="Whether the launcher hosts ranks: it is replica 0, one of worker.replicas. It has the GPUs of a "
        "worker and, unless it sets its own, the resources of a worker.",
    )
