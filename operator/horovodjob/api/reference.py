"""The API reference for users, generated from the models: `python -m horovodjob.api.reference [FILE]`."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from horovodjob.api.constants import API_VERSION, KIND, ConditionType, EventReason, Phase, Reason
from horovodjob.api.crd import COLUMNS, NAME_RULES, schema_of
from horovodjob.api.frozen_spec import frozen_paths
from horovodjob.api.spec import HorovodJobSpec
from horovodjob.api.status import HorovodJobStatus

PHASES: Mapping[Phase, str] = {
    Phase.QUEUED: "Not all pods have a node yet.",
    Phase.STARTING: "All pods have a node: images are pulled, workers are prepared and start to answer over ssh.",
    Phase.RUNNING: "mpirun, or the launcher's own command, runs.",
    Phase.RESTARTING: "An attempt has ended and the next one is being set up, after a delay.",
    Phase.SUSPENDED: "No pods, because `runPolicy.suspend` is true.",
    Phase.TERMINATING: "The job has had its time, or was told to end, and its pods are ending.",
    Phase.SUCCEEDED: "All ranks ended with exit code 0. Never changes again.",
    Phase.FAILED: "No restarts are left, the deadline has passed, or the job was told to end. Never changes again.",
}
CONDITIONS: Mapping[ConditionType, str] = {
    ConditionType.QUEUED: "The job waits for nodes.",
    ConditionType.PREPARED: "All workers answer.",
    ConditionType.RUNNING: "mpirun runs.",
    ConditionType.SUCCEEDED: "The job has ended with success.",
    ConditionType.FAILED: "The job has ended without success.",
    ConditionType.SUSPENDED: "The job has no pods, by wish.",
    ConditionType.READY: "The job is as it should be: running, suspended or succeeded.",
    ConditionType.RECONCILING: "The operator is on its way there.",
    ConditionType.STALLED: "Nothing goes on without somebody's help; the message says what helps.",
}
REASONS: Mapping[Reason, str] = {
    Reason.ADMITTED: "All pods have a node: the job has been admitted, and `Queued` is over.",
    Reason.WAITING_FOR_NODES: "Pods have no node yet, or a quota is used up; the message has the scheduler's words.",
    Reason.WAITING_FOR_WORKERS: "All pods have a node; the workers start.",
    Reason.PREPARATION_RUNNING: "All pods have a node; `preparation` runs on some.",
    Reason.RANKS_RUNNING: "mpirun runs the ranks, or the launcher its own command.",
    Reason.ALL_RANKS_SUCCEEDED: "mpirun, or the launcher's own command, ended with exit code 0.",
    Reason.RANK_FAILED: "It ended with another exit code.",
    Reason.LAUNCHER_FAILED: "The launcher ended, was killed or was deleted.",
    Reason.PREPARATION_FAILED: "`preparation` failed on a node, or did not end in time.",
    Reason.WORKER_LOST: "A worker ended, failed or was deleted.",
    Reason.WORKER_OUT_OF_MEMORY: "A worker reached its memory limit.",
    Reason.EVICTED: "The platform took a pod: eviction, preemption, a drained node.",
    Reason.NODE_LOST: "The node of a pod is gone, or the launcher cannot reach a worker.",
    Reason.IMAGE_PULL_FAILED: "An image cannot be pulled; the kubelet tries again.",
    Reason.SSH_UNAVAILABLE: "A worker does not answer over ssh, or the image has no ssh server.",
    Reason.SCRIPT_NOT_FOUND: "`script.path` does not exist in the containers.",
    Reason.BACKOFF_LIMIT_EXCEEDED: "The last of the restarts that `runPolicy.backoffLimit` allows has failed.",
    Reason.DEADLINE_EXCEEDED: "The job ran for longer than `runPolicy.activeDeadlineSeconds`.",
    Reason.SCHEDULING_TIMEOUT: "Some pods had no node within `scheduling.timeoutSeconds`: all are made again later.",
    Reason.TERMINATED: "`runPolicy.terminate` is true.",
    Reason.SUSPENDED_BY_USER: "`runPolicy.suspend` is true.",
    Reason.STORAGE_UNAVAILABLE: "A volume cannot be mounted; the message has the kubelet's words.",
    Reason.INVALID_SPEC: "Pods cannot be made as the job asks; the message says which field is wrong.",
    Reason.NAME_CONFLICT: "An object with the name of one of the job's is somebody else's.",
}
EVENTS: Mapping[EventReason, str] = {
    EventReason.CREATED: "The pods are being created.",
    EventReason.ADMITTED: "All pods have a node.",
    EventReason.WORKERS_READY: "All workers answer.",
    EventReason.STARTED: "mpirun runs.",
    EventReason.RESTARTING: "An attempt has failed; another follows.",
    EventReason.PREEMPTED: "The platform took a pod; another attempt follows, or an elastic job goes on without it.",
    EventReason.RESIZED: "An elastic job has another size, or has lost a worker that ended by itself.",
    EventReason.SCHEDULING_TIMEOUT: "Some pods had no node in time; all are deleted and made again later.",
    EventReason.SUSPENDED: "The pods are being deleted.",
    EventReason.RESUMED: "The job runs again, from the start.",
    EventReason.SUCCEEDED: "The job has succeeded.",
    EventReason.FAILED: "The job has failed.",
}
RANGES = (
    ("minimum", "maximum", ""),
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " items"),
    ("minProperties", "maxProperties", " entries"),
)
OBJECTS = """\
| object | name | note |
|---|---|---|
| Secret | `<job>-mpi` | immutable: ssh keys and start scripts of this job alone; one for each release that starts it |
| Pods | `<job>-worker-<index>` | run the ranks, in sessions of their ssh server |
| Pod | `<job>-launcher` | runs mpirun; its annotation `horovodjob.dev/hosts` is the hostfile |
| NetworkPolicy | `<job>` | only the job's own pods can connect to its pods; unless `network.isolate` is false |
| Service | `<job>` | headless, only with `network.service`: `<job>-worker-0.<job>` is the address of worker 0 |
| PodGroup | `<job>` | only with `scheduling.gang`: the pods are placed all at once or not at all |

All of them are owned by the job and deleted with it. The job has no finalizer. An object with such a name that is not
the job's is never touched: the job waits with reason `NameConflict`. Labels:

| label | meaning |
|---|---|
| `horovodjob.dev/job` | name of the job |
| `horovodjob.dev/job-uid` | its uid, on pods |
| `horovodjob.dev/role` | `launcher` or `worker`, on pods |
| `horovodjob.dev/replica-index` | index of the worker, from 0 |
| `horovodjob.dev/spec-hash` | hash of the spec that the pod was made from, but for run policy and elastic size |
| `horovodjob.dev/attempt` | attempt that the pod was created for |
| `app.kubernetes.io/name` | `horovodjob` |
| `app.kubernetes.io/instance` | name of the job |
| `app.kubernetes.io/component` | the role, on pods |
| `app.kubernetes.io/managed-by` | `horovodjob-operator` |

On the job itself, the label `horovodjob.dev/experiment` becomes part of `status.outputPathSegment`; labels and
annotations that begin with `kueue.x-k8s.io/` reach its pods; the annotation `scheduling.volcano.sh/queue-name` is the
queue of a PodGroup of Volcano.
"""
ENVIRONMENT = """\
| variable | value |
|---|---|
| `HOROVODJOB_NAME`, `HOROVODJOB_NAMESPACE` | name and namespace of the job |
| `HOROVODJOB_ATTEMPT` | number of the attempt, from 1; above 1, continue from a checkpoint |
| `HOROVODJOB_POD` | name of the pod |
| `HOROVODJOB_SLOTS` | ranks per worker |
| `HOROVODJOB_HOSTFILE`, `AZ_BATCHAI_MPI_HOST_FILE` | path of the [hostfile](jobs.md#mpi) |
| `AZ_BATCHAI_JOB_MOUNT_ROOT` | directory for mounts of shares |
| `AZ_BATCHAI_JOB_TEMP` | a directory of the pod's own, gone with it |
| `AZ_BATCHAI_STDOUTERR_DIR` | directory of the job's output files |
| `AZ_BATCHAI_NUM_GPUS` | GPUs per worker |
| `AZ_BATCHAI_INPUT_<id>` | path of the entry of `inputs` with this id |
| `AZ_BATCHAI_OUTPUT_<id>` | directory of the entry of `outputs` with this id; it has been made |
| `HOROVODJOB_PROGRESS_URL` | on worker 0, where rank 0 is: URL that it can post its progress to |
| `HOROVODJOB_PROGRESS_TOKEN_FILE` | on worker 0: file with the bearer token for that, renewed every few minutes |
| `NCCL_SOCKET_IFNAME`, `NCCL_DEBUG` | on workers with GPUs, unless set: the pod's interface, `WARN` |
| `NCCL_IB_DISABLE` | on workers with GPUs and without InfiniBand devices, unless set: `1` |

Variables of `env` and `envFrom` reach every rank too; values of `env` can refer to those above: `$(HOROVODJOB_NAME)`.
"""


def fields(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Every field below, with its path, its schema and whether it has to be given."""
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        yield here, field, name in schema.get("required", ())
        # What is open is Kubernetes' own and described there.
        if "x-kubernetes-preserve-unknown-fields" not in field:
            yield from fields(field, here)
        items = field.get("items", {})
        yield from fields(
            {**items, "properties": {n: f for n, f in items.get("properties", {}).items() if "type" in f}},
            f"{here}[]",
        )


def type_name(field: Mapping[str, Any]) -> str:
    """The field's type in a word or two."""
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "enum" in field:
        return ", ".join(f"`{word}`" if word else "empty" for word in field["enum"])
    if field.get("format") == "date-time":
        return "time"
    if "items" in field:
        return f"list of {_plural(type_name(field['items']))}"
    if "additionalProperties" in field:
        return f"map of {_plural(type_name(field['additionalProperties']))}"
    return str(field.get("type", "anything"))


def _plural(word: str) -> str:
    return "quantities" if word == "quantity" else f"{word}s"


def bounds(field: Mapping[str, Any]) -> str:
    """The field's bounds in words."""
    if field.get("x-kubernetes-int-or-string"):
        return "such as 500m, 2, 4Gi"
    said = [_range(field, *keys) for keys in RANGES]
    if keys := field.get("x-kubernetes-list-map-keys"):
        said.append(f"each {keys[0]} once")
    return ", ".join(words for words in said if words)


def _range(field: Mapping[str, Any], low: str, high: str, unit: str) -> str:
    least, most = field.get(low), field.get(high)
    if least is None:
        return "" if most is None else f"at most {most}{unit}"
    return f"at least {least}{unit}" if most is None else f"{least} to {most}{unit}"


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    lines = [tuple(heads), *(tuple(row) for row in rows)]
    lines.insert(1, ("---",) * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _spec_rows() -> Iterator[tuple[str, str, str, str, str]]:
    for path, field, required in fields(schema_of(HorovodJobSpec)):
        default = field.get("default")
        shown = "required" if required else "" if default in (None, {}, []) else f"`{_plain(default)}`"
        yield f"`{path}`", type_name(field), shown, bounds(field), _cell(field["description"])


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")


def _rules() -> Iterator[str]:
    def below(schema: Mapping[str, Any], path: str) -> Iterator[str]:
        for rule in schema.get("x-kubernetes-validations", ()):
            yield f"{path}{rule['message']}"
        for name, field in schema.get("properties", {}).items():
            yield from below(field, f"{path}{name}: " if not path else f"{path.removesuffix(': ')}.{name}: ")

    yield from (rule["message"] for rule in NAME_RULES)
    yield from below(schema_of(HorovodJobSpec), "")


def _words(meanings: Mapping[Any, str]) -> Iterator[tuple[str, str]]:
    return ((f"`{word}`", meaning) for word, meaning in meanings.items())


def _frozen() -> str:
    names = [f"`{path}`" for path in ("worker.replicas", *frozen_paths())]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def reference() -> str:
    """The whole page."""
    status = (
        (f"`{path}`", type_name(field), _cell(field["description"]))
        for path, field, _ in fields(schema_of(HorovodJobStatus))
    )
    columns = (
        (f"`{name}`", f"`{path}`", "wide" if wide else "always", words) for name, _, path, wide, words in COLUMNS
    )
    rules = "".join(f"- {_cell(rule)}\n" for rule in _rules())
    return f"""\
<!-- Generated from the models by `python -m horovodjob.api.reference docs/api.md`: change those, not this page. -->
# {KIND}

`apiVersion: {API_VERSION}`, `kind: {KIND}`, namespaced; `kubectl get hvj`. Subresources `status` and `scale`
(`kubectl scale hvj NAME --replicas=4` while the job is suspended, or at any time where it is elastic).
`kubectl explain hvj.spec` tells the same.

## spec

{table(("field", "type", "default", "bounds", "meaning"), _spec_rows())}
### Rules

The API server refuses a job that breaks one of them:

{rules}
A job that is not suspended is frozen: {_frozen()} can change only while `runPolicy.suspend` is true, or in the update
that makes it true or false; with `elastic` set, `worker.replicas` can change at any time. `runPolicy.terminate` and
`runPolicy.ttlSecondsAfterFinished` can change at any time,
`runPolicy.managedBy` never. Unknown fields of `worker.template` and `launcher.template` are kept and passed on.

## status

{table(("field", "type", "meaning"), status)}
### Phases

{table(("phase", "meaning"), _words(PHASES))}
### Conditions

{table(("condition", "when it is True"), _words(CONDITIONS))}
Tools that wait for objects (Helm, Flux, Argo CD, `kubectl wait --for=condition=Ready`) read the last three.

### Reasons

{table(("reason", "meaning"), _words(REASONS))}
### Events

Each is told once per transition.

{table(("event", "meaning"), _words(EVENTS))}
## What a rank finds

{ENVIRONMENT}
## Objects of a job

{OBJECTS}
## Columns of `kubectl get hvj`

{table(("column", "from", "shown", "meaning"), columns)}"""


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(reference())
    else:
        sys.stdout.write(reference())
