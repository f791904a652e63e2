"""Jobs that together have every field of the resource, and a status with every field."""

from collections.abc import Iterator
from typing import Any

from support.api_client import Object

CONTAINER = {"name": "worker", "env": [{"name": "DEBUG", "value": "1"}]}
LIMITS = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
GOODPUT = dict.fromkeys(
    ("steps", "starting", "setup", "input", "exchange", "validation", "checkpoints", "stalled"), 10
) | {"lostSteps": 5, "restartDelay": 10}
MOMENT = "2026-11-22T12:00:00Z"
WHOLE: Object = {
    "image": "trainer:1",
    "imagePullPolicy": "Always",
    "imagePullSecrets": [{"name": "registry"}],
    "command": ["python3", "train.py"],
    "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "a"}}}],
    "envFrom": [{"configMapRef": {"name": "settings"}}],
    "worker": {
        "replicas": 2,
        "gpus": 1,
        "slots": 2,
        "resources": LIMITS,
        "template": {"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [CONTAINER]}},
    },
    "launcher": {"resources": LIMITS, "template": {"spec": {"hostNetwork": True}}, "asWorker": False},
    "pool": "gpunp",
    "spot": True,
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 60}],
    "priorityClassName": "low",
    "serviceAccountName": "trainer",
    "podSecurity": "Baseline",
    "mpi": {"implementation": "OpenMPI", "args": ["-x", "A"], "prefix": "/opt/openmpi"},
    "azureFiles": [
        {
            "name": "data",
            "account": "mystorageaccount",
            "share": "data",
            "directory": "cifar",
            "secretName": "keys",
            "relativeMountPath": "data",
            "readOnly": True,
            "mountOptions": ["nosharesock"],
            "protocol": "smb",
            "server": "files.example.com",
        },
        {
            "name": "own",
            "account": "mystorageaccount",
            "share": "own",
            "clientID": "9d0c6b9e-0000-4000-8000-000000000000",
        },
    ],
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True, "subPath": "a"}],
    "shmSize": "1Gi",
    "preparation": {"command": "true", "timeoutSeconds": 60},
    "inputs": [{"id": "A", "path": "/data"}],
    "outputs": [{"id": "A", "pathPrefix": "/data", "pathSuffix": "a"}],
    "logs": {"pathPrefix": "/data/logs"},
    "scheduling": {"gang": "None", "timeoutSeconds": 60, "avoidFailedNodes": False},
    "network": {"service": True, "isolate": True},
    "runPolicy": {
        "suspend": False,
        "cleanPodPolicy": "Running",
        "backoffLimit": 3,
        "onWorkerLoss": "Restart",
        "activeDeadlineSeconds": 3600,
        "progressDeadlineSeconds": 1800,
        "failOnExitCodes": [2, 64],
        "ttlSecondsAfterFinished": 60,
        "terminate": False,
        "managedBy": "horovodjob.dev/operator",
    },
    "managedBy": "horovodjob.dev/operator",
}
SPECS: dict[str, Object] = {
    "whole": WHOLE,
    "elastic": {
        "image": "trainer:1",
        "script": {"path": "/data/train.py", "interpreter": "python3", "args": ["--fast"]},
        "worker": {"replicas": 2, "gpus": 0},
        "elastic": {"minReplicas": 1, "maxReplicas": 4, "resetLimit": 3, "cooldownSeconds": [1, 60]},
    },
    "launched": {"image": "trainer:1", "launcherCommand": ["mpirun", "train"], "worker": {"replicas": 1, "gpus": 0}},
}
PODS = {"active": 1, "ready": 1, "succeeded": 0, "failed": 0}
STATUS: Object = {
    "observedGeneration": 1,
    "phase": "Running",
    "executionState": "running",
    "conditions": [
        {
            "type": "Running",
            "status": "True",
            "observedGeneration": 1,
            "lastTransitionTime": MOMENT,
            "reason": "RanksRunning",
            "message": "mpirun runs",
        }
    ],
    "startTime": MOMENT,
    "runningTime": MOMENT,
    "completionTime": MOMENT,
    "activeSeconds": 60,
    "attempt": 2,
    "restarts": 1,
    "preemptions": 1,
    "exitCode": 1,
    "replicas": 2,
    "selector": "a=b",
    "replicaStatuses": {"Launcher": PODS, "Worker": PODS},
    "workersReady": "2/2",
    "outputPathSegment": "a/b",
    "errors": [
        {
            "time": MOMENT,
            "attempt": 1,
            "pod": "a-launcher",
            "node": "b",
            "container": "launcher",
            "reason": "RankFailed",
            "exitCode": 1,
            "steps": 120,
            "failedNodes": ["b"],
            "nodeConditions": ["node b reports XIDErrors"],
            "message": "boom",
        }
    ],
    "queue": {"name": "gpus", "clusterQueue": "team", "position": 3, "flavors": ["spot"]},
    "training": {
        "epoch": 1,
        "epochs": 2,
        "step": 3,
        "stepsPerEpoch": 4,
        "progress": 0.5,
        "percent": "50%",
        "samplesPerSecond": 10.5,
        "eta": MOMENT,
        "metrics": {"loss": 0.5},
        "nonFinite": ["val_loss"],
        "extremes": {
            "loss": {"min": {"value": 0.5, "epoch": 1}, "max": {"value": 0.5, "epoch": 1}, "mode": "min"},
        },
        "slowestRank": {"rank": 5, "pod": "a-worker-2", "node": "gpu-7", "ratio": 1.6, "section": "input"},
        "goodput": {
            "percent": 71.5,
            "seconds": GOODPUT,
            "queuedSeconds": 30,
            "firstStep": 0,
            "steps": 200,
            "attempt": {"number": 2, "percent": 80.0, "seconds": GOODPUT, "steps": 200, "firstStep": 100},
        },
        "best": {"metric": "loss", "mode": "min", "value": 0.5, "epoch": 1},
        "history": [
            {
                "epoch": 1,
                "time": MOMENT,
                "metrics": {"loss": 0.5},
                "nonFinite": ["val_loss"],
                "learningRate": 0.1,
                "samplesPerSecond": 10.5,
            }
        ],
    },
}


def fields(schema: Object, path: str = "") -> Iterator[str]:
    """The paths of a schema's fields; fields below a value of any type are omitted."""
    if schema.get("properties") and not schema.get("x-kubernetes-preserve-unknown-fields"):
        for name, field in schema["properties"].items():
            yield from fields(field, f"{path}.{name}")
    elif "items" in schema:
        yield from fields(schema["items"], f"{path}[]")
    else:
        yield path


def paths(value: Any, path: str = "") -> Iterator[str]:
    """The paths of the fields of a value."""
    yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from paths(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for inner in value:
            yield from paths(inner, f"{path}[]")


def pruned(value: Any, schema: Object) -> Any:
    """The value after pruning: without the fields that the schema does not have."""
    if isinstance(value, dict) and "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        properties = schema["properties"]
        return {name: pruned(inner, properties[name]) for name, inner in value.items() if name in properties}
    return (
        [pruned(inner, schema["items"]) for inner in value] if isinstance(value, list) and "items" in schema else value
    )


def holds(stored: object, given: object) -> bool:
    """Whether all given fields are stored; the API server may have added defaults."""
    if isinstance(given, dict) and isinstance(stored, dict):
        return all(key in stored and holds(stored[key], value) for key, value in given.items())
    if isinstance(given, list) and isinstance(stored, list):
        return len(given) == len(stored) and all(map(holds, stored, given))
    return stored == given
