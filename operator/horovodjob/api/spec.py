"""The `spec` of a HorovodJob. `kubectl explain` shows the description of each field."""

import re
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from horovodjob.api.azure_files import AzureFileShare
from horovodjob.api.base import LabelValue, Model, Name, Quantity, Text, list_map, validations
from horovodjob.api.constants import OPERATOR_NAME, PodSecurity
from horovodjob.api.pod_fields import EnvFrom, EnvVar, LocalObjectReference, Toleration, Volume, VolumeMount
from horovodjob.api.policies import ManagedBy, Network, RunPolicy, Scheduling
from horovodjob.api.program import Elastic, Input, Logs, Mpi, Output, Preparation, Script
from horovodjob.api.replicas import Launcher, Worker
from horovodjob.api.spec_rules import SPEC_RULES

# Images are pulled meanwhile, some of 10 GB; a shorter scheduling.timeoutSeconds is meant for the scheduler.
MIN_START_SECONDS = 600
TRAINER_PROGRAM, TRAINER_MODULE = "horovodjob-trainer", "horovodjob_trainer"
TRAINER_USAGE_ERROR = 2
# Options of Python: -m, also after others in one word, and those whose value is the next word.
MODULE_OPTION = re.compile(r"-[bBdEiIOPqsSuvx]*m(.*)")
OPTIONS_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")


class HorovodJobSpec(Model):
    """The desired state: a program, its processes and how they run."""

    model_config = validations(*SPEC_RULES)
    image: Annotated[str, StringConstraints(max_length=1024, pattern=r"^\S*$")] = Field(
        description="Container image of launcher and workers, with an ssh server, an ssh client and mpirun. Empty: the "
        "default image of the settings of the operator."
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        None, description="Always, IfNotPresent or Never; the default is that of a pod."
    )
    image_pull_secrets: tuple[LocalObjectReference, ...] | None = Field(
        None,
        description="Secrets with credentials for the registry.",
        max_length=16,
        json_schema_extra=list_map("name"),
    )
    script: Script | None = Field(
        None, description="Script that each rank runs. Exactly one of script, command and launcherCommand is required."
    )
    command: tuple[Text, ...] | None = Field(
        None,
        description="Command that each rank runs. As in a container, $(VAR) is replaced and $$ is an escaped $.",
        min_length=1,
        max_length=4096,
    )
    launcher_command: tuple[Text, ...] | None = Field(
        None,
        description="Command that runs once, in the launcher, and starts MPI itself; the file $HOROVODJOB_HOSTFILE "
        "contains the hosts. $(VAR) is replaced and $$ is an escaped $.",
        min_length=1,
        max_length=4096,
    )
    env: tuple[EnvVar, ...] | None = Field(
        None,
        description="Environment variables of all ranks.",
        max_length=1000,
        json_schema_extra=list_map("name"),
    )
    env_from: tuple[EnvFrom, ...] | None = Field(
        None,
        description="ConfigMaps and Secrets with keys that become environment variables of all ranks.",
        max_length=100,
    )
    worker: Worker = Field(Worker(), description="The workers, which run the ranks.")
    launcher: Launcher = Field(Launcher(), description="The launcher, which runs mpirun.")
    mpi: Mpi = Field(Mpi(), description="Options of mpirun.")
    elastic: Elastic | None = Field(
        None,
        description="Elastic training with Horovod's elastic driver and Gloo in place of mpirun: worker.replicas can "
        "change while the job runs, and the training continues when workers are lost. Absent: a fixed number of "
        "workers.",
    )
    pool: LabelValue | None = Field(
        None,
        description="AKS node pool, as a node selector on kubernetes.azure.com/agentpool. With spot it is that of the "
        "workers.",
        min_length=1,
    )
    node_selector: dict[str, LabelValue] | None = Field(
        None,
        description="Required labels of the nodes of launcher and workers; with spot, those of a pool or of spot nodes "
        "apply to the workers only.",
        json_schema_extra={"maxProperties": 64},
    )
    tolerations: tuple[Toleration, ...] | None = Field(
        None,
        description="Taints that launcher and workers tolerate. Workers with GPUs always tolerate the taints of GPU "
        "nodes, sku=gpu and nvidia.com/gpu, and so does a launcher that runs in a pool.",
        max_length=64,
    )
    spot: bool = Field(
        False,
        description="Whether workers tolerate and prefer AKS spot nodes; the launcher never runs on one, and so not in "
        "the pool of the workers unless its template selects that.",
    )
    priority_class_name: Name | None = Field(None, description="PriorityClass of the pods.")
    service_account_name: Name | None = Field(
        None, description="Service account of the pods. Without it, the pods have no token of a service account."
    )
    pod_security: PodSecurity = Field(
        PodSecurity.RESTRICTED,
        description="Pod Security level of the pods: Restricted (not root, no capabilities), or Baseline for images "
        "that require root.",
    )
    azure_files: tuple[AzureFileShare, ...] | None = Field(
        None,
        description="Shares of Azure Files that are mounted in launcher and workers below AZ_BATCHAI_JOB_MOUNT_ROOT.",
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
        description="Mounts of the volumes in launcher and workers.",
        max_length=200,
        json_schema_extra=list_map("mountPath"),
    )
    shm_size: Quantity | None = Field(
        None,
        description="Size of the memory-backed /dev/shm, such as 2Gi. By default pods with GPUs have one of half their "
        "memory limit, and other pods have none.",
    )
    preparation: Preparation | None = Field(
        None, description="Command that runs in each container with ranks before any rank."
    )
    inputs: tuple[Input, ...] | None = Field(
        None,
        description="Paths that are values of environment variables.",
        max_length=100,
        json_schema_extra=list_map("id"),
    )
    outputs: tuple[Output, ...] | None = Field(
        None,
        description="Directories that are created for this job alone; their paths are values of environment variables.",
        max_length=100,
        json_schema_extra=list_map("id"),
    )
    logs: Logs | None = Field(None, description="Files with the output of the job on a mounted volume.")
    network: Network = Field(Network(), description="Network access of the pods.")
    scheduling: Scheduling = Field(Scheduling(), description="How the pods are scheduled.")
    run_policy: RunPolicy = Field(RunPolicy(), description="How the job starts, restarts and ends.")
    managed_by: ManagedBy | None = Field(
        None,
        description=f"Controller of the job; the operator ignores the job if this is not {OPERATOR_NAME}, such as "
        "kueue.x-k8s.io/multikueue.",
    )

    @property
    def slots(self) -> int:
        """Ranks per worker."""
        return self.worker.slots or max(self.worker.gpus, 1)

    @property
    def worker_indices(self) -> range:
        """Indices of the replicas that are worker pods: all, or all except the launcher."""
        return range(1 if self.launcher.as_worker else 0, self.worker.replicas)

    @property
    def min_workers(self) -> int:
        """Minimum number of worker pods with which ranks can run."""
        return self.elastic.min_replicas if self.elastic else len(self.worker_indices)

    @property
    def start_timeout_seconds(self) -> int:
        """Seconds within which the ranks must run when all pods have a node."""
        start = max(self.scheduling.timeout_seconds, MIN_START_SECONDS)
        return start + (self.preparation.timeout_seconds if self.preparation else 0)

    @property
    def final_exit_codes(self) -> tuple[int, ...]:
        """Exit codes of the program after which a restart is pointless."""
        if self.run_policy.fail_on_exit_codes is not None:
            return self.run_policy.fail_on_exit_codes
        return (TRAINER_USAGE_ERROR,) if self.runs_trainer else ()

    @property
    def runs_trainer(self) -> bool:
        """Whether the trainer is the command, and not a part of another program."""
        program, *arguments = self.command or ("",)
        name = program.rpartition("/")[2]
        return name == TRAINER_PROGRAM or (name.startswith("python") and _python_module(arguments) == TRAINER_MODULE)

    @property
    def launcher_requests(self) -> dict[str, str]:
        """Default resource requests of a launcher that hosts no ranks.

        An idle ssh client needs 1.4 MiB. There is one for each worker, or for each rank of an elastic job.
        """
        return {"cpu": "100m", "memory": f"{256 + self._sessions_mebibytes}Mi"}

    @property
    def launcher_limits(self) -> dict[str, str]:
        """Default limits of a launcher that hosts no ranks, for the resources that the workers have limits of.

        A namespace with a quota of limits refuses a pod without limits. The limit of memory is four times the request.
        A launcher with a command of the user has no default limits.
        """
        resources = self.worker.resources
        limited = (resources.limits if resources and not self.launcher_command else None) or {}
        defaults = {"cpu": "1", "memory": f"{4 * (256 + self._sessions_mebibytes)}Mi"}
        return {name: limit for name, limit in defaults.items() if name in limited}

    @property
    def _sessions_mebibytes(self) -> int:
        """Memory of the ssh clients beyond the first 64."""
        sessions = self.worker.replicas * (self.slots if self.elastic else 1)
        return 2 * max(sessions - 64, 0)

    @property
    def argv(self) -> tuple[str, ...]:
        """Command of each rank; empty if the job has a launcherCommand."""
        if self.script is not None:
            return (self.script.interpreter, self.script.path, *self.script.args)
        return self.command or ()


def _python_module(arguments: Iterable[str]) -> str:
    """The module that Python runs with these arguments; empty if it runs something else."""
    words = iter(arguments)
    for word in words:
        if found := MODULE_OPTION.fullmatch(word):
            return found[1] or next(words, "")
        if word in OPTIONS_WITH_VALUE:
            next(words, None)
        elif not word.startswith("-") or word in ("-", "-c"):
            break
    return ""
