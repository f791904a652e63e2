"""The rules of the schema: those over several fields, and the patterns. The API server's own checks need no test."""

from dataclasses import dataclass

from support.api_client import Object

SHARE: Object = {"name": "myshare", "account": "mystorageaccount", "share": "myshare"}
DATA: Object = {"name": "data", "emptyDir": {}}
SCRATCH: Object = {"name": "scratch", "emptyDir": {}}


@dataclass(frozen=True, slots=True)
class Rule:
    """A validation rule over several fields: an invalid spec, a valid one, and words of the message."""

    bad: Object
    good: Object
    words: str

    def __str__(self) -> str:
        return self.words


ONE_OF = "set exactly one of script, command and launcherCommand"
OWN_ENV = "env: names that begin with HOROVODJOB_ or AZ_BATCHAI_ are set by the operator"
UNKNOWN_MOUNT = "volumeMounts: each name must be that of an entry of spec.volumes"
ABSOLUTE = "must be an absolute path on a mounted volume"
OUT_OF_BOUNDS = "worker.replicas must be from elastic.minReplicas to elastic.maxReplicas"
SECRET_KEY = {"secretKeyRef": {"name": "token", "key": "token"}}
MOUNT = {"name": "data", "mountPath": "/data"}
RULES: tuple[Rule, ...] = (
    Rule(
        {"managedBy": "example.org/a", "runPolicy": {"managedBy": "example.org/b"}},
        {"managedBy": "example.org/a", "runPolicy": {"managedBy": "example.org/a"}},
        "managedBy and runPolicy.managedBy differ: remove runPolicy.managedBy",
    ),
    Rule({"elastic": {"minReplicas": 3}}, {"elastic": {"minReplicas": 2}}, OUT_OF_BOUNDS),
    Rule(
        {"elastic": {"maxReplicas": 2}, "worker": {"replicas": 3}},
        {"elastic": {"maxReplicas": 3}, "worker": {"replicas": 3}},
        OUT_OF_BOUNDS,
    ),
    Rule(
        {"elastic": {"cooldownSeconds": [3, 2]}},
        {"elastic": {"cooldownSeconds": [2, 2]}},
        "cooldownSeconds must be [least, most]",
    ),
    Rule(
        {"elastic": {}, "launcherCommand": ["true"], "command": None},
        {"elastic": {}},
        "elastic needs script or command",
    ),
    Rule(
        {"elastic": {}, "launcher": {"asWorker": True}},
        {"elastic": {}, "launcher": {"asWorker": False}},
        "elastic does not go with launcher.asWorker",
    ),
    Rule(
        {"elastic": {}, "mpi": {"args": ["-x", "A"]}},
        {"elastic": {}, "mpi": {"args": []}},
        "elastic does not go with mpi.args",
    ),
    Rule(
        {"elastic": {}, "mpi": {"implementation": "MPICH"}},
        {"elastic": {}, "mpi": {"implementation": "OpenMPI"}},
        "elastic does not go with MPICH and Intel MPI",
    ),
    Rule({"command": None}, {"command": ["true"]}, ONE_OF),
    Rule(
        {"launcherCommand": ["true"]},
        {"launcherCommand": ["true"], "command": None},
        ONE_OF,
    ),
    Rule({"script": {"path": "/a.py"}}, {"script": {"path": "/a.py"}, "command": None}, ONE_OF),
    Rule({"env": [{"name": "HOROVODJOB_NAME"}]}, {"env": [{"name": "HOROVOD_CYCLE_TIME"}]}, OWN_ENV),
    Rule({"env": [{"name": "AZ_BATCHAI_INPUT_X"}]}, {"env": [{"name": "AZ_KEY"}]}, OWN_ENV),
    Rule(
        {"env": [{"name": "TOKEN", "value": "x", "valueFrom": SECRET_KEY}]},
        {"env": [{"name": "TOKEN", "valueFrom": SECRET_KEY}]},
        "env: a variable has either a value or a valueFrom, not both",
    ),
    Rule(
        {"volumes": [{"name": "horovodjob-run", "emptyDir": {}}]},
        {"volumes": [DATA]},
        "volumes: names that begin with horovodjob- belong to the operator",
    ),
    Rule(
        {"volumeMounts": [MOUNT]},
        {"volumeMounts": [MOUNT], "volumes": [DATA]},
        UNKNOWN_MOUNT,
    ),
    Rule(
        {"volumeMounts": [MOUNT], "volumes": [SCRATCH]},
        {"volumeMounts": [MOUNT], "volumes": [SCRATCH, DATA]},
        UNKNOWN_MOUNT,
    ),
    *(
        Rule(
            {"azureFiles": [{**SHARE, "relativeMountPath": path}]},
            {"azureFiles": [{**SHARE, "relativeMountPath": "..data/myshare"}]},
            "relativeMountPath must be a path below $AZ_BATCHAI_JOB_MOUNT_ROOT",
        )
        for path in ("/myshare", "a/../../b")
    ),
    Rule(
        {"azureFiles": [{**SHARE, "directory": "../other"}]},
        {"azureFiles": [{**SHARE, "directory": "cifar/data"}]},
        "directory must be a path on the share without a leading / and without ..",
    ),
    *(
        Rule(
            {"azureFiles": [{**SHARE, "protocol": "nfs", **more}]},
            {"azureFiles": [{**SHARE, "protocol": "nfs"}]},
            "protocol nfs takes no secretName, clientID or mountOptions",
        )
        for more in ({"secretName": "key"}, {"clientID": "1"}, {"mountOptions": ["nconnect=4"]})
    ),
    Rule(
        {"azureFiles": [{**SHARE, "secretName": "key", "clientID": "1"}]},
        {"azureFiles": [{**SHARE, "secretName": "key"}]},
        "set secretName (an account key) or clientID (workload identity), not both",
    ),
    Rule(
        {"azureFiles": [SHARE, {**SHARE, "name": "again", "relativeMountPath": "myshare"}]},
        {"azureFiles": [SHARE, {**SHARE, "name": "again"}]},
        "azureFiles: two entries have one mount path; give each a relativeMountPath of its own",
    ),
    Rule(
        {"outputs": [{"id": "A", "pathPrefix": "models"}]},
        {"outputs": [{"id": "A", "pathPrefix": "$(AZ_BATCHAI_JOB_MOUNT_ROOT)/share"}]},
        ABSOLUTE,
    ),
    *(
        Rule(
            {"outputs": [{"id": "A", "pathPrefix": "/data", "pathSuffix": suffix}]},
            {"outputs": [{"id": "A", "pathPrefix": "/data", "pathSuffix": "..models/a"}]},
            "pathSuffix must be a relative path without ..",
        )
        for suffix in ("/models", "..", "models/../..")
    ),
    Rule(
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
        for bad, good in (("2ND", "_2nd"), ("A=1", "-a.b-2"))
    ),
    *(Pattern("shmSize", {"shmSize": bad}, {"shmSize": good}) for bad, good in (("1 GB", "1.5Gi"), ("-1", 2))),
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
