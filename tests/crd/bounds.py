"""Each bound of the schema, with an invalid and a valid value."""

from dataclasses import dataclass
from typing import Any

from support.api_client import Object, job

WORDS = {
    "minimum": "should be greater than or equal to",
    "maximum": "should be less than or equal to",
    "minLength": "should be at least",
    "maxLength": "Too long: may not be more than",
    "pattern": "should match",
    "enum": "Unsupported value",
    "minItems": "should have at least",
    "maxItems": "must have at most",
    "maxProperties": "must have at most",
    "unique": "Duplicate value",
    "type": "must be of type",
    "anyOf": "must be of type",
    "required": "Required value",
}
# Required fields of list items other than the bounded one.
ITEMS: dict[str, Object] = {
    "azureFiles": {"name": "myshare", "account": "mystorageaccount", "share": "myshare"},
    "env": {"name": "A"},
    "imagePullSecrets": {"name": "registry"},
    "tolerations": {},
    "inputs": {"id": "A", "path": "/data"},
    "outputs": {"id": "A", "pathPrefix": "/data"},
    "volumes": {"name": "data", "emptyDir": {}},
    "volumeMounts": {"name": "data", "mountPath": "/data"},
}
# Lists that need more than one item.
COUNTS = {"cooldownSeconds": 2}
BESIDE: dict[str, Object] = {
    "launcherCommand": {"command": None},
    "volumeMounts": {"volumes": [{"name": name, "emptyDir": {}} for name in ("data", "n", "n" * 63)]},
    "script": {"command": None},
    "elastic": {"worker": {"replicas": 1}},
    "elastic.minReplicas": {"worker": {"replicas": 10000}},
}


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound of a field, an invalid and a valid value."""

    path: str
    keyword: str
    bad: Any
    good: Any

    def __str__(self) -> str:
        return f"{self.path}:{self.keyword}"

    @property
    def complaint(self) -> tuple[str, str]:
        """The field path and the message of the API server."""
        return f"spec.{self.path.replace('[]', '[0]').replace('{}', '.cpu')}".split("..")[0], WORDS[self.keyword]


def spec_with(path: str, value: Any) -> Object:
    """The spec of a valid job with this value of this field."""
    placed = _placed(path, value)
    (name,) = placed
    spec: Object = job()["spec"] | BESIDE.get(path, BESIDE.get(name, {})) | placed
    return {key: value for key, value in spec.items() if value is not None}


def _placed(path: str, value: Any) -> Object:
    head, _, rest = path.partition(".")
    name = head.removesuffix("[]").removesuffix("{}")
    inner = _placed(rest, value) if rest else value
    if name == "script":
        inner = {"path": "/train.py"} | inner
    if name == "preparation":
        inner = {"command": "true"} | inner
    if head.endswith("{}"):
        inner = {"cpu": inner}
    if head.endswith("[]"):
        inner = [ITEMS.get(name, {}) | inner if rest else inner] * COUNTS.get(name, 1)
    return {name: inner}


def _length(path: str, most: int, least: int = 0, letter: str = "n") -> list[Bound]:
    bounds = [Bound(path, "maxLength", letter * (most + 1), letter * most)]
    return bounds + ([Bound(path, "minLength", "", letter)] if least else [])


def _range(path: str, least: int | None, most: int | None) -> list[Bound]:
    bounds = [] if least is None else [Bound(path, "minimum", least - 1, least)]
    return bounds if most is None else [*bounds, Bound(path, "maximum", most + 1, most)]


def _many(path: str, most: int, item: Any, key: str = "") -> list[Bound]:
    def items(count: int) -> list[Any]:
        return [{**item, key: f"{item[key]}{number}"} if key else item for number in range(count)]

    return [Bound(path, "maxItems", items(most + 1), items(most))]


def _twice(path: str, first: Object, second: Object) -> Bound:
    return Bound(path, "unique", [first, first], [first, second])


def _properties(path: str, most: int, value: Any) -> Bound:
    full = {f"key{number}": value for number in range(most)}
    return Bound(path, "maxProperties", full | {"more": value}, full)


def _quantity(path: str) -> list[Bound]:
    return [
        Bound(path, "pattern", "1 GB", "1.5Gi"),
        Bound(path, "pattern", "-1", 2),
        Bound(path, "pattern", "1e", "1e3"),
        Bound(path, "maxLength", "1" * 33, "1" * 32),
        Bound(path, "anyOf", True, 4),
    ]


def _resources(role: str) -> list[Bound]:
    return [
        bound
        for kind in ("requests", "limits")
        for bound in (
            *_quantity(f"{role}.resources.{kind}{{}}"),
            _properties(f"{role}.resources.{kind}", 64, "1"),
        )
    ]


DATA, SCRATCH = {"name": "data", "emptyDir": {}}, {"name": "scratch", "emptyDir": {}}
SHARE = ITEMS["azureFiles"]

BOUNDS: tuple[Bound, ...] = (
    Bound("image", "required", None, "trainer:1"),
    *_length("image", 1024, 0),
    Bound("image", "pattern", "my image", "example.org/trainer@sha256:0123"),
    Bound("imagePullPolicy", "enum", "Sometimes", "Always"),
    *_length("imagePullSecrets[].name", 253, 1),
    *_many("imagePullSecrets", 16, {"name": "s"}, "name"),
    _twice("imagePullSecrets", {"name": "one"}, {"name": "two"}),
    *_length("script.path", 4096, 1),
    *_length("script.interpreter", 4096, 1),
    *_length("script.args[]", 131072),
    *_many("script.args", 4096, "x"),
    *_length("command[]", 131072),
    Bound("command", "minItems", [], ["true"]),
    *_many("command", 4096, "x"),
    *_length("env[].name", 256, 1, "N"),
    Bound("env[].name", "pattern", "2ND", "_2nd"),
    *_length("env[].value", 131072),
    *_many("env", 1000, {"name": "N"}, "name"),
    _twice("env", {"name": "A"}, {"name": "B"}),
    *_many("envFrom", 100, {"configMapRef": {"name": "settings"}}),
    *_range("worker.replicas", 1, 10000),
    *_range("worker.gpus", 0, None),
    *_range("worker.slots", 1, 256),
    *_resources("worker"),
    *_resources("launcher"),
    Bound("worker.template", "type", "hostNetwork", {"spec": {"hostNetwork": True}}),
    Bound("launcher.template", "type", ["hostNetwork"], {}),
    *_length("pool", 63, 1),
    *_length("nodeSelector{}", 63),
    _properties("nodeSelector", 64, "a"),
    *_length("tolerations[].key", 317),
    Bound("tolerations[].operator", "enum", "Has", "Exists"),
    *_length("tolerations[].value", 63),
    Bound("tolerations[].effect", "enum", "Never", "NoExecute"),
    *_many("tolerations", 64, {"operator": "Exists"}),
    *_length("serviceAccountName", 253, 1),
    Bound("podSecurity", "enum", "Privileged", "Baseline"),
    *_length("azureFiles[].name", 46, 1),
    Bound("azureFiles[].name", "pattern", "My_Share", "my-share"),
    Bound("azureFiles[].account", "minLength", "ab", "abc"),
    Bound("azureFiles[].account", "maxLength", "a" * 25, "a" * 24),
    Bound("azureFiles[].account", "pattern", "my-account", "account1"),
    Bound("azureFiles[].share", "minLength", "ab", "abc"),
    Bound("azureFiles[].share", "maxLength", "a" * 64, "a" * 63),
    Bound("azureFiles[].share", "pattern", "my--share", "my-share-2"),
    *_length("azureFiles[].directory", 1024, 1),
    *_length("azureFiles[].secretName", 253, 1),
    *_length("azureFiles[].clientID", 64, 1),
    Bound("azureFiles[].clientID", "pattern", "my client", "11111111-2222-3333-4444-555555555555"),
    *_length("azureFiles[].relativeMountPath", 1024, 1),
    Bound("azureFiles[].readOnly", "type", "yes", True),
    *_length("azureFiles[].mountOptions[]", 256, 1),
    Bound("azureFiles[].mountOptions[]", "pattern", "uid=1,gid=1", "uid=1"),
    *_many("azureFiles[].mountOptions", 64, "x"),
    Bound("azureFiles[].protocol", "enum", "cifs", "nfs"),
    *_length("azureFiles[].server", 253, 1),
    Bound("azureFiles[].server", "pattern", "//server/share", "mystorageaccount.file.core.chinacloudapi.cn"),
    *_many("azureFiles", 20, SHARE, "name"),
    _twice("azureFiles", SHARE, {**SHARE, "name": "again"}),
    *_length("volumes[].name", 63, 1),
    *_many("volumes", 100, {"name": "v", "emptyDir": {}}, "name"),
    _twice("volumes", DATA, SCRATCH),
    *_length("volumeMounts[].name", 63, 1),
    *_length("volumeMounts[].mountPath", 1024, 1, "/"),
    *_length("volumeMounts[].subPath", 4096),
    *_length("volumeMounts[].subPathExpr", 4096),
    *_length("volumeMounts[].mountPropagation", 32),
    *_length("volumeMounts[].recursiveReadOnly", 32),
    Bound("volumeMounts[].readOnly", "type", "yes", True),
    *_many("volumeMounts", 200, {"name": "data", "mountPath": "/"}, "mountPath"),
    _twice("volumeMounts", {"name": "data", "mountPath": "/a"}, {"name": "data", "mountPath": "/b"}),
    *_length("launcherCommand[]", 131072),
    Bound("launcherCommand", "minItems", [], ["true"]),
    *_many("launcherCommand", 4096, "x"),
    Bound("mpi.implementation", "enum", "LAM", "IntelMPI"),
    *_length("mpi.args[]", 131072),
    *_many("mpi.args", 1024, "x"),
    *_length("priorityClassName", 253, 1),
    Bound("spot", "type", "yes", True),
    *_length("preparation.command", 131072, 1),
    *_range("preparation.timeoutSeconds", 1, 2147483647),
    *_length("inputs[].id", 63, 1, "I"),
    Bound("inputs[].id", "pattern", "a-b", "_2nd"),
    *_length("inputs[].path", 4096, 1),
    *_many("inputs", 100, {"id": "I", "path": "/data"}, "id"),
    _twice("inputs", {"id": "A", "path": "/a"}, {"id": "B", "path": "/a"}),
    *_length("outputs[].id", 63, 1, "O"),
    Bound("outputs[].id", "pattern", "2nd", "_2nd"),
    *_length("outputs[].pathPrefix", 4096, 1, "/"),
    *_length("outputs[].pathSuffix", 1024),
    *_many("outputs", 100, {"id": "O", "pathPrefix": "/data"}, "id"),
    _twice("outputs", {"id": "A", "pathPrefix": "/a"}, {"id": "B", "pathPrefix": "/a"}),
    *_quantity("shmSize"),
    *_length("logs.pathPrefix", 4096, 1, "/"),
    Bound("runPolicy.cleanPodPolicy", "enum", "Some", "All"),
    *_range("runPolicy.backoffLimit", 0, 1000),
    *_range("runPolicy.activeDeadlineSeconds", 1, 2147483647),
    Bound("runPolicy.onWorkerLoss", "enum", "Ignore", "Fail"),
    *_range("runPolicy.ttlSecondsAfterFinished", 0, 2147483647),
    *_length("managedBy", 63, 1),
    *_length("runPolicy.managedBy", 63, 1),
    Bound("network.service", "type", "yes", True),
    Bound("network.isolate", "type", "yes", False),
    Bound("launcher.asWorker", "type", "yes", True),
    *_range("elastic.minReplicas", 1, 10000),
    *_range("elastic.maxReplicas", 1, 10000),
    *_range("elastic.resetLimit", 1, 2147483647),
    Bound("elastic.cooldownSeconds", "minItems", [1], [1, 3600]),
    Bound("elastic.cooldownSeconds", "maxItems", [1, 2, 3], [1, 1]),
    Bound("elastic.cooldownSeconds[]", "minimum", 0, 1),
    Bound("elastic.cooldownSeconds[]", "maximum", 3601, 3600),
    *_range("scheduling.timeoutSeconds", 1, 2147483647),
    Bound("scheduling.gang", "enum", "Kueue", "Volcano"),
    Bound("runPolicy.suspend", "type", "yes", True),
    Bound("runPolicy.terminate", "type", "yes", True),
)


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
