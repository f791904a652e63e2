"""The `spec` of a HorovodJob. `kubectl explain` shows the description of each field."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from horovodjob.api.azure_files import AzureFileShare
from horovodjob.api.base import LabelValue, Model, Name, Quantity, Text, list_map, validations
from horovodjob.api.constants import PodSecurity
from horovodjob.api.pod_fields import EnvFrom, EnvVar, LocalObjectReference, Toleration, Volume, VolumeMount
from horovodjob.api.policies import Network, RunPolicy, Scheduling
from horovodjob.api.program import Elastic, Input, Logs, Mpi, Output, Preparation, Script
from horovodjob.api.replicas import Launcher, Worker
from horovodjob.api.spec_rules import SPEC_RULES


class HorovodJobSpec(Model):
    """The wish: a program, its processes and how they run."""

    model_config = validations(*SPEC_RULES)
    image: Annotated[str, StringConstraints(max_length=1024, pattern=r"^\S*$")] = Field(
        description="Container image of launcher and workers; it needs an ssh server and client and mpirun. Empty: the "
        "default image of the operator's settings."
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        None, description="Always, IfNotPresent or Never; default as in a pod."
    )
    image_pull_secrets: tuple[LocalObjectReference, ...] | None = Field(
        None,
        description="Secrets with credentials of the registry.",
        max_length=16,
        json_schema_extra=list_map("name"),
    )
    script: Script | None = Field(
        None, description="A script that every rank runs. Exactly one of script, command and launcherCommand."
    )
    command: tuple[Text, ...] | None = Field(
        None,
        description="A command that every rank runs; as in a container, $(VAR) is replaced and $$ stands for $.",
        min_length=1,
        max_length=4096,
    )
    launcher_command: tuple[Text, ...] | None = Field(
        None,
        description="A command that runs once, in the launcher, and starts MPI itself; the hosts are in the file "
        "$HOROVODJOB_HOSTFILE. $(VAR) is replaced and $$ stands for $.",
        min_length=1,
        max_length=4096,
    )
    env: tuple[EnvVar, ...] | None = Field(
        None,
        description="Environment variables of every rank.",
        max_length=1000,
        json_schema_extra=list_map("name"),
    )
    env_from: tuple[EnvFrom, ...] | None = Field(
        None, description="ConfigMaps and Secrets whose keys become variables of every rank.", max_length=100
    )
    worker: Worker = Field(Worker(), description="The workers, which run the ranks.")
    launcher: Launcher = Field(Launcher(), description="The launcher, which runs mpirun.")
    mpi: Mpi = Field(Mpi(), description="How mpirun is called.")
    elastic: Elastic | None = Field(
        None,
        description="Lets worker.replicas change while the job runs, and the training go on when workers are lost: "
        "with Horovod's elastic driver and Gloo in place of mpirun. Absent: a fixed number of workers.",
    )
    pool: LabelValue | None = Field(
        None, description="AKS node pool: a node selector on kubernetes.azure.com/agentpool.", min_length=1
    )
    node_selector: dict[str, LabelValue] | None = Field(
        None,
        description="Labels that the nodes of launcher and workers must have.",
        json_schema_extra={"maxProperties": 64},
    )
    tolerations: tuple[Toleration, ...] | None = Field(
        None,
        description="Taints that launcher and workers accept; workers with GPUs always accept those of GPU nodes, "
        "sku=gpu and nvidia.com/gpu, and so does the launcher where pool is set.",
        max_length=64,
    )
    spot: bool = Field(False, description="Workers accept and prefer AKS spot nodes; the launcher never runs on one.")
    priority_class_name: Name | None = Field(None, description="PriorityClass of the pods.")
    service_account_name: Name | None = Field(
        None, description="Service account of the pods; without it they get no token."
    )
    pod_security: PodSecurity = Field(
        PodSecurity.RESTRICTED,
        description="Pod Security level of the pods: Restricted (not root, no capabilities), or Baseline for images "
        "that need root.",
    )
    azure_files: tuple[AzureFileShare, ...] | None = Field(
        None,
        description="Shares of Azure Files, mounted in launcher and workers below AZ_BATCHAI_JOB_MOUNT_ROOT.",
        max_length=20,
        json_schema_extra=list_map("name"),
    )
    volumes: tuple[Volume, ...] | None = Field(
        None,
        description="Volumes of launcher and workers.",
        max_length=100,
        json_schema_extra=list_map("name"),
    )
    volume_mounts: tuple[VolumeMount, ...] | None = Field(
        None,
        description="Where the volumes appear in launcher and workers.",
        max_length=200,
        json_schema_extra=list_map("mountPath"),
    )
    shm_size: Quantity | None = Field(None, description="Size of a memory-backed /dev/shm, such as 2Gi.")
    preparation: Preparation | None = Field(None, description="What runs on every node with ranks before any rank.")
    inputs: tuple[Input, ...] | None = Field(
        None, description="Paths that ranks find in variables.", max_length=100, json_schema_extra=list_map("id")
    )
    outputs: tuple[Output, ...] | None = Field(
        None,
        description="Directories that are made for this very job, and that ranks find in variables.",
        max_length=100,
        json_schema_extra=list_map("id"),
    )
    logs: Logs | None = Field(None, description="Files with the job's output on a mounted volume.")
    network: Network = Field(Network(), description="How the job's pods find each other.")
    scheduling: Scheduling = Field(Scheduling(), description="How the job's pods come to their nodes.")
    run_policy: RunPolicy = Field(RunPolicy(), description="How the job starts, restarts and ends.")

    @property
    def slots(self) -> int:
        """Processes per worker."""
        return self.worker.slots or max(self.worker.gpus, 1)

    @property
    def worker_indices(self) -> range:
        """Indices of the replicas that are worker pods: all, or all but the launcher."""
        return range(1 if self.launcher.as_worker else 0, self.worker.replicas)

    @property
    def min_workers(self) -> int:
        """Worker pods without which no rank can run."""
        return self.elastic.min_replicas if self.elastic else len(self.worker_indices)

    @property
    def launcher_requests(self) -> dict[str, str]:
        """What a launcher requests that hosts no ranks and has no resources of its own.

        An idle ssh client has 1.4 MiB of its own. There is one for each worker, or for each rank of an elastic job.
        """
        sessions = self.worker.replicas * (self.slots if self.elastic else 1)
        return {"cpu": "100m", "memory": f"{256 + 2 * max(sessions - 64, 0)}Mi"}

    @property
    def argv(self) -> tuple[str, ...]:
        """What each rank executes; nothing where the launcher's own command says that."""
        if self.script is not None:
            return (self.script.interpreter, self.script.path, *self.script.args)
        return self.command or ()
