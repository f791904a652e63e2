"""The launcher and the workers of a job."""

from typing import Annotated, Any

from pydantic import Field

from horovodjob.api.base import Model, open_object
from horovodjob.api.pod_fields import Resources

PodTemplate = Annotated[
    dict[str, Any],
    open_object({"metadata": "Labels and annotations of the pod.", "spec": "Fields of a pod's spec."}),
]


class RolePods(Model):
    """What launcher and workers have in common."""

    resources: Resources | None = Field(None, description="Requests and limits of the container.")
    template: PodTemplate | None = Field(
        None,
        description="A PodTemplate (metadata.labels, metadata.annotations, spec) laid over the generated pod: lists of "
        "containers, volumes, env, mounts and tolerations are merged by name or key, null removes a field. The "
        "operator keeps the start command and restartPolicy for itself.",
    )


class Worker(RolePods):
    """The pods that run ranks."""

    replicas: int = Field(1, ge=1, le=10000, description="Number of worker pods.")
    gpus: int = Field(1, ge=0, description="GPUs (nvidia.com/gpu) per worker; 0 for CPU only.")
    slots: int | None = Field(
        None, ge=1, le=256, description="Processes (ranks) per worker; default one per GPU, at least one."
    )


class Launcher(RolePods):
    """The pod that runs mpirun; by default it requests 100m CPU and 256Mi memory, more with many workers."""

    as_worker: bool = Field(
        False,
        description="The launcher hosts ranks too: it is replica 0, one of worker.replicas, with the GPUs and, unless "
        "it has its own, the resources of a worker.",
    )
