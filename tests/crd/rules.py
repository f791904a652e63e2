"""The rules of the schema: those over several fields, and the patterns. The API server's own checks need no test."""

from dataclasses import dataclass

from support.api_client import Object

SHARE: Object = {"name": "myshare", "account": "mystorageaccount", "share": "myshare"}
DATA: Object = {"name": "data", "emptyDir": {}}
SCRATCH: Object = {"name": "scratch", "emptyDir": {}}


@dataclass(frozen=True, slots=True)
class Rule:
    """A validation rule over several fields: an invalid spec, a valid one, and the error message."""

    name: str
    bad: Object
    good: Object
    sentence: str

    def __str__(self) -> str:
        return self.name


ONE_OF = "spec: Invalid value: set exactly one of script, command and launcherCommand"
OWN_ENV = (
    "spec: Invalid value: env: names that begin with HOROVODJOB_ or AZ_BATCHAI_ are set by the operator, "
    "choose another name"
)
OWN_VOLUME = (
    "spec: Invalid value: volumes: names that begin with horovodjob- belong to the operator, choose another name"
)
UNKNOWN_MOUNT = "spec: Invalid value: volumeMounts: each name must be that of an entry of spec.volumes"
RELATIVE = "pathSuffix must be a relative path without .., such as models"
ABSOLUTE = (
    "spec.logs: Invalid value: must be an absolute path on a mounted volume, such as /data/logs or "
    "$(AZ_BATCHAI_JOB_MOUNT_ROOT)/share"
)
ABSOLUTE_OUTPUT = ABSOLUTE.replace("spec.logs", "spec.outputs[0]")
SECRET_KEY = {"secretKeyRef": {"name": "token", "key": "token"}}
MOUNT = {"name": "data", "mountPath": "/data"}
NFS = (
    "spec.azureFiles[0]: Invalid value: protocol nfs takes no secretName, clientID or mountOptions: NFS shares have no "
)
NFS += "keys, and their options need a PersistentVolume (spec.volumes)"
OUT_OF_BOUNDS = "spec: Invalid value: worker.replicas must be from elastic.minReplicas to elastic.maxReplicas"
RULES: tuple[Rule, ...] = (
    Rule(
        "two managers",
        {"managedBy": "example.org/a", "runPolicy": {"managedBy": "example.org/b"}},
        {"managedBy": "example.org/a", "runPolicy": {"managedBy": "example.org/a"}},
        "spec: Invalid value: managedBy and runPolicy.managedBy differ: remove runPolicy.managedBy",
    ),
    Rule(
        "fewer workers than the least", {"elastic": {"minReplicas": 3}}, {"elastic": {"minReplicas": 2}}, OUT_OF_BOUNDS
    ),
    Rule(
        "more workers than the most",
        {"elastic": {"maxReplicas": 2}, "worker": {"replicas": 3}},
        {"elastic": {"maxReplicas": 3}, "worker": {"replicas": 3}},
        OUT_OF_BOUNDS,
    ),
    Rule(
        "a shortest cooldown above the longest",
        {"elastic": {"cooldownSeconds": [3, 2]}},
        {"elastic": {"cooldownSeconds": [2, 2]}},
        "spec.elastic: Invalid value: cooldownSeconds must be [least, most]",
    ),
    Rule(
        "an elastic job that starts its ranks itself",
        {"elastic": {}, "launcherCommand": ["true"], "command": None},
        {"elastic": {}},
        "spec: Invalid value: elastic needs script or command: "
        "Horovod's elastic driver starts the ranks, not a launcherCommand",
    ),
    Rule(
        "an elastic job whose launcher hosts ranks",
        {"elastic": {}, "launcher": {"asWorker": True}},
        {"elastic": {}, "launcher": {"asWorker": False}},
        "spec: Invalid value: elastic does not go with launcher.asWorker: workers come and go, the launcher cannot",
    ),
    Rule(
        "an elastic job with options of mpirun",
        {"elastic": {}, "mpi": {"args": ["-x", "A"]}},
        {"elastic": {}, "mpi": {"args": []}},
        "spec: Invalid value: elastic does not go with mpi.args: Horovod's elastic driver starts the ranks, not mpirun",
    ),
    Rule(
        "an elastic job of another MPI",
        {"elastic": {}, "mpi": {"implementation": "MPICH"}},
        {"elastic": {}, "mpi": {"implementation": "OpenMPI"}},
        "spec: Invalid value: elastic does not go with MPICH and Intel MPI: "
        "Horovod's elastic driver starts the ranks, not mpirun",
    ),
    Rule("nothing to run", {"command": None}, {"command": ["true"]}, ONE_OF),
    Rule(
        "both command and launcherCommand",
        {"launcherCommand": ["true"]},
        {"launcherCommand": ["true"], "command": None},
        ONE_OF,
    ),
    Rule(
        "both script and command", {"script": {"path": "/a.py"}}, {"script": {"path": "/a.py"}, "command": None}, ONE_OF
    ),
    Rule(
        "the operator's variable",
        {"env": [{"name": "HOROVODJOB_NAME"}]},
        {"env": [{"name": "HOROVOD_CYCLE_TIME"}]},
        OWN_ENV,
    ),
    Rule("Batch AI's variable", {"env": [{"name": "AZ_BATCHAI_INPUT_X"}]}, {"env": [{"name": "AZ_KEY"}]}, OWN_ENV),
    Rule(
        "a value and a source of it",
        {"env": [{"name": "TOKEN", "value": "x", "valueFrom": SECRET_KEY}]},
        {"env": [{"name": "TOKEN", "valueFrom": SECRET_KEY}]},
        "spec: Invalid value: env: a variable has either a value or a valueFrom, not both",
    ),
    Rule(
        "the operator's volume",
        {"volumes": [{"name": "horovodjob-run", "emptyDir": {}}]},
        {"volumes": [DATA]},
        OWN_VOLUME,
    ),
    Rule(
        "a mount without volumes",
        {"volumeMounts": [MOUNT]},
        {"volumeMounts": [MOUNT], "volumes": [DATA]},
        UNKNOWN_MOUNT,
    ),
    Rule(
        "a mount of another volume",
        {"volumeMounts": [MOUNT], "volumes": [SCRATCH]},
        {"volumeMounts": [MOUNT], "volumes": [SCRATCH, DATA]},
        UNKNOWN_MOUNT,
    ),
    *(
        Rule(
            f"a share that is mounted elsewhere, {path}",
            {"azureFiles": [{**SHARE, "relativeMountPath": path}]},
            {"azureFiles": [{**SHARE, "relativeMountPath": "..data/myshare"}]},
            "spec.azureFiles[0]: Invalid value: relativeMountPath must be a path below $AZ_BATCHAI_JOB_MOUNT_ROOT "
            "without a leading / and without .., such as myshare",
        )
        for path in ("/myshare", "..", "a/../../b")
    ),
    Rule(
        "a directory outside the share",
        {"azureFiles": [{**SHARE, "directory": "../other"}]},
        {"azureFiles": [{**SHARE, "directory": "cifar/data"}]},
        "spec.azureFiles[0]: Invalid value: directory must be a path on the share without a leading / and without .., "
        "such as cifar/data",
    ),
    *(
        Rule(
            f"an NFS share with {next(iter(more))}",
            {"azureFiles": [{**SHARE, "protocol": "nfs", **more}]},
            {"azureFiles": [{**SHARE, "protocol": "nfs"}]},
            NFS,
        )
        for more in ({"secretName": "key"}, {"clientID": "1"}, {"mountOptions": ["nconnect=4"]})
    ),
    Rule(
        "a share with a key and an identity",
        {"azureFiles": [{**SHARE, "secretName": "key", "clientID": "1"}]},
        {"azureFiles": [{**SHARE, "secretName": "key"}]},
        "spec.azureFiles[0]: Invalid value: set secretName (an account key) or clientID (workload identity), not both",
    ),
    Rule(
        "two shares at one path",
        {"azureFiles": [SHARE, {**SHARE, "name": "again", "relativeMountPath": "myshare"}]},
        {"azureFiles": [SHARE, {**SHARE, "name": "again"}]},
        "spec: Invalid value: azureFiles: two entries have one mount path; give each a relativeMountPath of its own",
    ),
    Rule(
        "an output in a relative path",
        {"outputs": [{"id": "A", "pathPrefix": "models"}]},
        {"outputs": [{"id": "A", "pathPrefix": "$(AZ_BATCHAI_JOB_MOUNT_ROOT)/share"}]},
        ABSOLUTE_OUTPUT,
    ),
    *(
        Rule(
            f"an output that leaves its directory, {suffix}",
            {"outputs": [{"id": "A", "pathPrefix": "/data", "pathSuffix": suffix}]},
            {"outputs": [{"id": "A", "pathPrefix": "/data", "pathSuffix": "..models/a"}]},
            f"spec.outputs[0]: Invalid value: {RELATIVE}",
        )
        for suffix in ("/models", "..", "../models", "models/../..")
    ),
    Rule(
        "logs in a relative path",
        {"logs": {"pathPrefix": "logs"}},
        {"logs": {"pathPrefix": "$(AZ_BATCHAI_JOB_MOUNT_ROOT)/share"}},
        ABSOLUTE,
    ),
)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern of a field: a spec with a value that it rejects, and one with a value that it accepts."""

    field: str
    bad: Object
    good: Object

    def __str__(self) -> str:
        return self.field


def _share(bad: Object, good: Object) -> Pattern:
    ((name, value),) = bad.items()
    place = "[0]" if isinstance(value, list) else ""
    return Pattern(f"azureFiles[0].{name}{place}", {"azureFiles": [SHARE | bad]}, {"azureFiles": [SHARE | good]})


PATTERNS: tuple[Pattern, ...] = (
    Pattern("image", {"image": "my image"}, {"image": "example.org/trainer@sha256:0123"}),
    *(
        Pattern("env[0].name", {"env": [{"name": bad}]}, {"env": [{"name": good}]})
        for bad, good in (("2ND", "_2nd"), ("A:B", "-a.b-2"), ("A=1", ".a"), ("A B", "A_B"))
    ),
    *(
        Pattern("shmSize", {"shmSize": bad}, {"shmSize": good})
        for bad, good in (("1 GB", "1.5Gi"), ("-1", 2), ("1e", "1e3"))
    ),
    *(
        Pattern("mpi.prefix", {"mpi": {"prefix": bad}}, {"mpi": {"prefix": good}})
        for bad, good in (("opt/openmpi", "/opt/openmpi"), ("/a:/b", "/"), ("/opt/open mpi", "/opt/openmpi-4.1.4/"))
    ),
    _share({"name": "My_Share"}, {"name": "my-share"}),
    _share({"account": "my-account"}, {"account": "account1"}),
    _share({"share": "my--share"}, {"share": "my-share-2"}),
    _share({"clientID": "my client"}, {"clientID": "11111111-2222-3333-4444-555555555555"}),
    _share({"mountOptions": ["uid=1,gid=1"]}, {"mountOptions": ["uid=1"]}),
    _share({"server": "//server/share"}, {"server": "mystorageaccount.file.core.chinacloudapi.cn"}),
    Pattern(
        "inputs[0].id", {"inputs": [{"id": "a-b", "path": "/data"}]}, {"inputs": [{"id": "_2nd", "path": "/data"}]}
    ),
    Pattern(
        "outputs[0].id",
        {"outputs": [{"id": "2nd", "pathPrefix": "/data"}]},
        {"outputs": [{"id": "_2nd", "pathPrefix": "/data"}]},
    ),
)
