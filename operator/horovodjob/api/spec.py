"""What a user asks for: `spec` of a HorovodJob. Each field's description is what `kubectl explain` shows."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from horovodjob.api.azure_files import AzureFileShare
from horovodjob.api.base import OPEN, LabelValue, Model, Name, Quantity, Text, list_map, open_fields, open_object
from horovodjob.api.constants import (
    OPERATOR_NAME,
    CleanPodPolicy,
    Gang,
    MpiImplementation,
    OnWorkerLoss,
    PodSecurity,
)

Path = Annotated[str, StringConstraints(max_length=4096)]
VolumeName = Annotated[str, StringConstraints(min_length=1, max_length=63)]
VOLUME_SOURCES = (
    "azureDisk",
    "azureFile",
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "fc",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "persistentVolumeClaim",
    "projected",
    "secret",
)
ValueFrom = Annotated[
    dict[str, Any],
    open_object(
        {
            "secretKeyRef": "A key of a Secret: name, key, optional.",
            "configMapKeyRef": "A key of a ConfigMap: name, key, optional.",
            "fieldRef": "A field of the pod: fieldPath.",
            "resourceFieldRef": "A request or limit of a container: resource, containerName, divisor.",
            "fileKeyRef": "A key of a file in a volume: volumeName, path, key, optional.",
        }
    ),
]
EnvFrom = Annotated[
    dict[str, Any],
    open_object(
        {
            "configMapRef": "A ConfigMap: name, optional.",
            "secretRef": "A Secret: name, optional.",
            "prefix": "What is put before the name of each variable.",
        }
    ),
]
PodTemplate = Annotated[
    dict[str, Any],
    open_object({"metadata": "Labels and annotations of the pod.", "spec": "Fields of a pod's spec."}),
]


def _validated(*rules: tuple[str, str]) -> ConfigDict:
    validations: list[Any] = [{"rule": rule, "message": message} for rule, message in rules]
    return ConfigDict(json_schema_extra={"x-kubernetes-validations": validations})


class EnvVar(Model):
    """One variable, as in a container."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = Field(
        description="Name of the variable: letters, digits and underscores, not beginning with a digit."
    )
    value: Text | None = Field(None, description="Its value; $(NAME) refers to a variable defined before it.")
    value_from: ValueFrom | None = Field(
        None, description="Where the value comes from instead: secretKeyRef, configMapKeyRef, fieldRef."
    )


class LocalObjectReference(Model):
    """An object of the job's namespace, by name."""

    name: Name = Field(description="Name of the object.")


class Resources(Model):
    """ResourceRequirements of a container."""

    requests: dict[str, Quantity] | None = Field(
        None, description="What the scheduler sets aside.", json_schema_extra={"maxProperties": 64}
    )
    limits: dict[str, Quantity] | None = Field(
        None, description="What the container can use at most.", json_schema_extra={"maxProperties": 64}
    )


class Toleration(Model):
    """A taint that the job's pods accept."""

    key: Annotated[str, StringConstraints(max_length=317)] | None = Field(
        None, description="Key of the taint; absent with operator Exists: every taint."
    )
    operator: Literal["Exists", "Equal", "Lt", "Gt"] | None = Field(
        None, description="Exists or Equal (the default); Lt and Gt where the cluster has them."
    )
    value: Annotated[str, StringConstraints(max_length=63)] | None = Field(
        None, description="Value of the taint, with operator Equal."
    )
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="NoSchedule, PreferNoSchedule or NoExecute; empty: all of them."
    )
    toleration_seconds: int | None = Field(None, description="How long a NoExecute taint is accepted.")


class VolumeMount(Model):
    """Where a volume appears in the containers, as in a container's volumeMounts."""

    model_config = ConfigDict(extra="allow", json_schema_extra=OPEN)
    name: VolumeName = Field(description="Name of the volume.")
    mount_path: Annotated[str, StringConstraints(min_length=1, max_length=1024)] = Field(
        description="Absolute path in the containers."
    )
    read_only: bool | None = Field(None, description="Whether the containers can only read it.")
    sub_path: Path | None = Field(None, description="Path within the volume that is mounted instead of its root.")
    sub_path_expr: Path | None = Field(None, description="The same, with $(NAME) replaced by variables.")
    mount_propagation: Annotated[str, StringConstraints(max_length=32)] | None = Field(
        None, description="None, HostToContainer or Bidirectional."
    )
    recursive_read_only: Annotated[str, StringConstraints(max_length=32)] | None = Field(
        None, description="Whether what is mounted below it can only be read too: Disabled, IfPossible or Enabled."
    )


def _volume_sources(schema: dict[str, Any]) -> None:
    words = {source: f"A volume of this kind; its fields are those of {source} in a pod." for source in VOLUME_SOURCES}
    schema["properties"] |= open_fields(words)
    schema.update(OPEN)


class Volume(Model):
    """A volume of the pods; its source is one of those that a pod can have."""

    model_config = ConfigDict(extra="allow", json_schema_extra=_volume_sources)
    name: VolumeName = Field(description="Name of the volume.")


class Script(Model):
    """A program file that every rank runs as `interpreter path args`."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=4096)] = Field(
        description="Path of the script in the containers; $(VAR) is replaced, so "
        "$(AZ_BATCHAI_JOB_MOUNT_ROOT)/share/train.py works."
    )
    interpreter: Annotated[str, StringConstraints(min_length=1, max_length=4096)] = Field(
        "python3", description="Program that runs the script."
    )
    args: tuple[Text, ...] = Field(
        (),
        description="Arguments of the script; as in a container, $(VAR) is replaced and $$ stands for $.",
        max_length=4096,
    )


PREFIX_RULE = "self.pathPrefix.startsWith('/') || self.pathPrefix.startsWith('$(')"
PREFIX_WORDS = "must be an absolute path on a mounted volume, such as /data/logs or $(AZ_BATCHAI_JOB_MOUNT_ROOT)/share"
PathPrefix = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
Identifier = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Input(Model):
    """A path that ranks find in a variable."""

    id: Identifier = Field(description="Ranks find the path in AZ_BATCHAI_INPUT_<id>.")
    path: Annotated[str, StringConstraints(min_length=1, max_length=4096)] = Field(
        description="Any path; $(VAR) is replaced, so $(AZ_BATCHAI_JOB_MOUNT_ROOT)/share/data works."
    )


class Output(Model):
    """A directory that is made for this very job."""

    model_config = _validated(
        (PREFIX_RULE, PREFIX_WORDS),
        (
            "!has(self.pathSuffix) || !self.pathSuffix.startsWith('/') && "
            "!self.pathSuffix.split('/').exists(part, part == '..')",
            "pathSuffix must be a relative path without .., such as models",
        ),
    )
    id: Identifier = Field(description="Ranks find the directory in AZ_BATCHAI_OUTPUT_<id>.")
    path_prefix: PathPrefix = Field(
        description="Directory on a mounted volume; the output is <pathPrefix>/<status.outputPathSegment>/<pathSuffix>."
    )
    path_suffix: Annotated[str, StringConstraints(max_length=1024)] | None = Field(
        None, description="Last part of the directory's path, which tells outputs with one prefix apart."
    )


class Preparation(Model):
    """What runs on every node with ranks before any rank; what it does to the file system stays."""

    command: Annotated[str, StringConstraints(min_length=1, max_length=131072)] = Field(
        description="Shell command, run once in each worker's container, again only in a worker that was replaced; "
        "$(VAR) is replaced and $$ stands for $."
    )
    timeout_seconds: int = Field(
        1800, ge=1, le=2147483647, description="Seconds after which it has failed if it has not ended."
    )


Cooldown = Annotated[int, Field(ge=1, le=3600)]


class Mpi(Model):
    """How mpirun is called."""

    implementation: MpiImplementation = Field(
        MpiImplementation.OPEN_MPI, description="Whose mpirun the image has: OpenMPI (4 or 5), MPICH or IntelMPI."
    )
    args: tuple[Text, ...] = Field(
        (), description="More options of mpirun, such as -x of Open MPI; $(VAR) is replaced.", max_length=1024
    )


class Elastic(Model):
    """Ranks that come and go while the training goes on."""

    model_config = _validated(
        (
            "!has(self.cooldownSeconds) || self.cooldownSeconds[0] <= self.cooldownSeconds[1]",
            "cooldownSeconds must be [least, most]",
        ),
    )
    min_replicas: int = Field(
        1,
        ge=1,
        le=10000,
        description="Workers with which the job starts where there are not nodes for more, and goes on when others "
        "are lost.",
    )
    max_replicas: int = Field(10000, ge=1, le=10000, description="The most that worker.replicas can be set to.")
    reset_limit: int | None = Field(
        None,
        ge=1,
        le=2147483647,
        description="How often the ranks of an attempt can change before the attempt fails; default without limit.",
    )
    cooldown_seconds: tuple[Cooldown, ...] = Field(
        (5, 60),
        min_length=2,
        max_length=2,
        description="After a rank failed, its worker gets no ranks for so long: [least, most], growing with each time.",
    )


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


class Logs(Model):
    """Files that the job writes while it runs."""

    model_config = _validated((PREFIX_RULE, PREFIX_WORDS))
    path_prefix: PathPrefix = Field(
        description="Directory on a mounted volume; files appear in "
        "<pathPrefix>/<status.outputPathSegment>/stdouterr/: stdout.txt, stderr.txt, execution-<pod>.log."
    )


class Network(Model):
    """How the job's pods find each other."""

    service: bool = Field(
        False,
        description="A headless Service with the job's name, for programs that look each other up: "
        "<job>-worker-0.<job> is a worker's address.",
    )
    isolate: bool = Field(
        True,
        description="A NetworkPolicy with the job's name: only the job's own pods can connect to its pods, where the "
        "cluster enforces such policies.",
    )


class Scheduling(Model):
    """How the job's pods come to their nodes."""

    gang: Gang = Field(
        Gang.NONE,
        description="A PodGroup with the job's name, whose pods are placed all at once or not at all: Native (that of "
        "Kubernetes, scheduling.k8s.io/v1alpha2), Volcano (placed by Volcano's scheduler) or None.",
    )
    timeout_seconds: int = Field(
        600,
        ge=1,
        le=2147483647,
        description="Seconds in which all pods of an attempt must have a node; if not, all are deleted and made again "
        "after a growing delay, so that two half-placed jobs never wait for each other for ever. A gang of which no "
        "pod is placed holds nothing, and may wait for longer.",
    )


class RunPolicy(Model):
    """How the job starts, restarts and ends."""

    model_config = _validated(
        (
            "!has(oldSelf.terminate) || !oldSelf.terminate || has(self.terminate) && self.terminate",
            "terminate cannot be taken back: a job that was told to end stays ended; create it anew",
        ),
        (
            "has(self.managedBy) == has(oldSelf.managedBy) && "
            "(!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
            "managedBy can never change: delete the job and create it anew",
        ),
    )
    suspend: bool = Field(False, description="No pods while true; false starts the program again from its beginning.")
    clean_pod_policy: CleanPodPolicy = Field(
        CleanPodPolicy.RUNNING,
        description="Which pods are deleted at the end: Running (workers; the launcher keeps its log), All or None.",
    )
    backoff_limit: int = Field(
        3,
        ge=0,
        le=1000,
        description="Restarts after a failure before the job fails; delays grow from 10 s to 6 min.",
    )
    on_worker_loss: OnWorkerLoss = Field(
        OnWorkerLoss.RESTART,
        description="What follows when a worker is evicted, preempted or deleted, or its node is gone: Restart (not "
        "counted against backoffLimit) or Fail.",
    )
    active_deadline_seconds: int | None = Field(
        None,
        ge=1,
        le=2147483647,
        description="Seconds of activity after which the job fails: all attempts counted, time in suspension not.",
    )
    ttl_seconds_after_finished: int | None = Field(
        None,
        ge=0,
        le=2147483647,
        description="Seconds after its end at which the HorovodJob is deleted, and with it all that it owns; can "
        "change at any time.",
    )
    terminate: bool = Field(
        False, description="true ends the job for ever: its pods go, its record and its files stay."
    )
    managed_by: Annotated[str, StringConstraints(min_length=1, max_length=63)] | None = Field(
        None,
        description=f"Who looks after the job; the operator leaves jobs alone where this is not {OPERATOR_NAME}.",
    )


class HorovodJobSpec(Model):
    """The wish: a program, its processes and how they run."""

    model_config = _validated(
        (
            "[has(self.script), has(self.command), has(self.launcherCommand)].filter(is, is).size() == 1",
            "set exactly one of script, command and launcherCommand",
        ),
        (
            "!has(self.elastic) || self.elastic.minReplicas <= self.worker.replicas && "
            "self.worker.replicas <= self.elastic.maxReplicas",
            "worker.replicas must be from elastic.minReplicas to elastic.maxReplicas",
        ),
        (
            "!has(self.elastic) || !has(self.launcherCommand)",
            "elastic needs script or command: Horovod's elastic driver starts the ranks, not a launcherCommand",
        ),
        (
            "!has(self.elastic) || !has(self.launcher.asWorker) || !self.launcher.asWorker",
            "elastic does not go with launcher.asWorker: workers come and go, the launcher cannot",
        ),
        (
            "!has(self.elastic) || !has(self.mpi.args) || self.mpi.args.size() == 0",
            "elastic does not go with mpi.args: Horovod's elastic driver starts the ranks, not mpirun",
        ),
        (
            "!has(self.elastic) || self.mpi.implementation == 'OpenMPI'",
            "elastic does not go with MPICH and Intel MPI: Horovod's elastic driver starts the ranks, not mpirun",
        ),
        (
            "!has(self.env) || self.env.all(e, !e.name.startsWith('HOROVODJOB_') && !e.name.startsWith('AZ_BATCHAI_'))",
            "env: names that begin with HOROVODJOB_ or AZ_BATCHAI_ are set by the operator, choose another name",
        ),
        (
            "!has(self.env) || self.env.all(e, !has(e.value) || !has(e.valueFrom))",
            "env: a variable has either a value or a valueFrom, not both",
        ),
        (
            "!has(self.volumes) || self.volumes.all(v, !v.name.startsWith('horovodjob-'))",
            "volumes: names that begin with horovodjob- belong to the operator, choose another name",
        ),
        (
            "!has(self.volumeMounts) || self.volumeMounts.all(m, has(self.volumes) && "
            "self.volumes.exists(v, v.name == m.name))",
            "volumeMounts: each name must be that of an entry of spec.volumes",
        ),
        (
            "!has(self.azureFiles) || self.azureFiles.all(a, self.azureFiles.exists_one(b, "
            "(has(a.relativeMountPath) ? a.relativeMountPath : a.name) == "
            "(has(b.relativeMountPath) ? b.relativeMountPath : b.name)))",
            "azureFiles: two entries have one mount path; give each a relativeMountPath of its own",
        ),
    )
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
