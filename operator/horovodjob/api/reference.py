"""Generator of the API reference for users: `python -m horovodjob.api.reference [FILE]`."""

import json
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from horovodjob.api.constants import API_VERSION, KIND
from horovodjob.api.crd import NAME_RULES, schema_of
from horovodjob.api.frozen_spec import frozen_paths
from horovodjob.api.meanings import CONDITIONS, EVENTS, PHASES, REASONS
from horovodjob.api.printer_columns import PRINTER_COLUMNS
from horovodjob.api.spec import HorovodJobSpec
from horovodjob.api.status import HorovodJobStatus

RANGES = (
    ("minimum", "maximum", ""),
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " items"),
    ("minProperties", "maxProperties", " entries"),
)
OBJECTS = """\
| object | name | note |
|---|---|---|
| Secret | `horovodjob-keys-<uid>` | immutable ssh keys of this job |
| Secret | `horovodjob-scripts-<digest>` | immutable start scripts of a release for all jobs; no job owns it |
| Pods | `<job>-worker-<index>` | run the ranks, in sessions of their ssh server |
| Pod | `<job>-launcher` | runs mpirun; its annotation `horovodjob.dev/hosts` is the hostfile |
| NetworkPolicy | `<job>` | only pods of the job can connect to its pods; absent if `network.isolate` is false |
| Service | `<job>` | headless, only with `network.service`; `<job>-worker-0.<job>` is the DNS name of worker 0 |
| PodGroup | `<job>` | only with `scheduling.gang`; the pods are scheduled all at once or not at all |

The job owns these objects, and Kubernetes deletes them with it. The job has no finalizer. The operator never changes an
object with such a name that does not belong to the job: the job waits with reason `NameConflict`. Labels:

| label | meaning |
|---|---|
| `horovodjob.dev/job` | name of the job |
| `horovodjob.dev/job-uid` | UID of the job, on pods |
| `horovodjob.dev/role` | `launcher` or `worker`, on pods |
| `horovodjob.dev/replica-index` | index of the worker, from 0 |
| `horovodjob.dev/spec-hash` | hash of the spec that the pod was created from, without run policy and elastic size |
| `horovodjob.dev/attempt` | attempt that the pod was created for |
| `app.kubernetes.io/name` | `horovodjob` |
| `app.kubernetes.io/instance` | name of the job |
| `app.kubernetes.io/component` | the role, on pods |
| `app.kubernetes.io/managed-by` | `horovodjob-operator` |

Pods of a job with a queue of Kueue also have its labels `kueue.x-k8s.io/podset`, `local-queue-name` and
`cluster-queue-name`, and the annotation `horovodjob.dev/workload-uid`: the UID of the Workload whose quota they use.
The annotation `horovodjob.dev/priority-class` of a Workload names the class that its priority is from, if that is not
its `priorityClassRef`.

On the job itself, the label `horovodjob.dev/experiment` becomes part of `status.outputPathSegment`, and
`kueue.x-k8s.io/queue-name` names its [queue](scheduling.md#queues). The annotation
`scheduling.volcano.sh/queue-name` sets the queue of a PodGroup of Volcano.
"""
ENVIRONMENT = """\
| variable | value |
|---|---|
| `HOROVODJOB_NAME`, `HOROVODJOB_NAMESPACE`, `HOROVODJOB_UID` | name, namespace and UID of the job |
| `HOROVODJOB_ATTEMPT` | number of the attempt, from 1; if it is above 1, continue from a checkpoint |
| `HOROVODJOB_POD` | name of the pod |
| `HOROVODJOB_SLOTS` | ranks per worker |
| `HOROVODJOB_HOSTFILE`, `AZ_BATCHAI_MPI_HOST_FILE` | path of the [hostfile](jobs-reference.md#mpi) |
| `AZ_BATCHAI_JOB_MOUNT_ROOT` | directory below which shares are mounted |
| `AZ_BATCHAI_JOB_TEMP` | a directory that is deleted with the pod |
| `AZ_BATCHAI_STDOUTERR_DIR` | directory of the output files of the job |
| `AZ_BATCHAI_NUM_GPUS` | GPUs per worker |
| `AZ_BATCHAI_INPUT_<id>` | path of the entry of `inputs` with this id |
| `AZ_BATCHAI_OUTPUT_<id>` | directory of the entry of `outputs` with this id; it exists |
| `HOROVODJOB_PROGRESS_URL` | on the pods that can host rank 0, and the next one: URL for reports of progress |
| `HOROVODJOB_PROGRESS_TOKEN_FILE` | on the same pods: file with a bearer token, renewed every few minutes |
| `NCCL_SOCKET_IFNAME`, `NCCL_DEBUG` | on workers with GPUs, unless set: the pod's interface, `WARN` |
| `NCCL_IB_DISABLE` | on workers with GPUs and without InfiniBand devices, unless set: `1` |

Ranks also have the variables of `env` and `envFrom`. Values of `env` can refer to the variables above, such as
`$(HOROVODJOB_NAME)`.
"""


def fields(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """All fields below a schema, with their paths, their schemas and whether they are required."""
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        yield here, field, name in schema.get("required", ())
        # Kubernetes documents the objects with unknown fields.
        if "x-kubernetes-preserve-unknown-fields" not in field:
            yield from fields(field, here)
        items = field.get("items", {})
        yield from fields(
            {**items, "properties": {n: f for n, f in items.get("properties", {}).items() if "type" in f}},
            f"{here}[]",
        )


def type_name(field: Mapping[str, Any]) -> str:
    """The type of a field, in a word or two."""
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
    """The bounds of a field, as text."""
    if field.get("x-kubernetes-int-or-string"):
        return "such as 500m, 2, 4Gi"
    parts = [_range(field, *keys) for keys in RANGES]
    if keys := field.get("x-kubernetes-list-map-keys"):
        parts.append(f"each {keys[0]} once")
    return ", ".join(part for part in parts if part)


def _range(field: Mapping[str, Any], low: str, high: str, unit: str) -> str:
    minimum, maximum = field.get(low), field.get(high)
    if minimum is None:
        return "" if maximum is None else f"at most {maximum}{unit}"
    return f"at least {minimum}{unit}" if maximum is None else f"{minimum} to {maximum}{unit}"


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


def _rule_messages() -> Iterator[str]:
    def below(schema: Mapping[str, Any], path: str) -> Iterator[str]:
        for rule in schema.get("x-kubernetes-validations", ()):
            yield f"{path}{rule['message']}"
        for name, field in schema.get("properties", {}).items():
            yield from below(field, f"{path}{name}: " if not path else f"{path.removesuffix(': ')}.{name}: ")

    yield from (rule["message"] for rule in NAME_RULES)
    yield from below(schema_of(HorovodJobSpec), "")


def _meaning_rows(meanings: Mapping[Any, str]) -> Iterator[tuple[str, str]]:
    return ((f"`{value}`", meaning) for value, meaning in meanings.items())


def _status_rows() -> Iterator[tuple[str, str, str]]:
    for path, field, _ in fields(schema_of(HorovodJobStatus)):
        yield f"`{path}`", type_name(field), _cell(field["description"])


def _column_rows() -> Iterator[tuple[str, str, str, str]]:
    for name, _, path, wide, words in PRINTER_COLUMNS:
        yield f"`{name}`", f"`{path}`", "wide" if wide else "always", words


def _frozen_fields() -> str:
    names = [f"`{path}`" for path in ("worker.replicas", *frozen_paths())]
    return _wrapped(
        f"Most fields are frozen unless the job is suspended: {', '.join(names[:-1])} and {names[-1]} can change only "
        "while `runPolicy.suspend` is true, or in the update that changes it. With `elastic`, `worker.replicas` can "
        "change at any time. `runPolicy.terminate` can change while the job runs, `managedBy` never. When the job has "
        "ended, only `runPolicy.ttlSecondsAfterFinished` can change: the job never runs again, so another run needs a "
        "job with another name. Unknown fields of `worker.template` and `launcher.template` are copied to the pods."
    )


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def reference() -> str:
    """The page, in Markdown."""
    rules = "".join(f"{_wrapped(f'- {_cell(rule)}', indent='  ')}\n" for rule in _rule_messages())
    return f"""\
<!-- Generated from the models by `python -m horovodjob.api.reference docs/api.md`: change those, not this page. -->
# {KIND}

`apiVersion: {API_VERSION}`, `kind: {KIND}`, namespaced; `kubectl get hvj`. Subresources `status` and
`scale` (`kubectl scale hvj NAME --replicas=4` while the job is suspended, or at any time where it is elastic).
`kubectl explain hvj.spec` shows the same descriptions.

## spec

{table(("field", "type", "default", "bounds", "meaning"), _spec_rows())}
### Rules

The API server refuses a job that violates one of these rules:

{rules}
{_frozen_fields()}

## status

{table(("field", "type", "meaning"), _status_rows())}
### Phases

{table(("phase", "meaning"), _meaning_rows(PHASES))}
### Conditions

{table(("condition", "when it is True"), _meaning_rows(CONDITIONS))}
Tools that wait for objects (Helm, Flux, Argo CD, `kubectl wait --for=condition=Ready`) read the last three. To wait for
the end, which can be a failure, see [schedules.md](schedules.md#wait-for-the-end).

### Reasons

{table(("reason", "meaning"), _meaning_rows(REASONS))}
### Events

The operator posts an event once, when what it means has happened.

{table(("event", "meaning"), _meaning_rows(EVENTS))}
## Environment of a rank

{ENVIRONMENT}
## Objects of a job

{OBJECTS}
## Columns of `kubectl get hvj`

{table(("column", "from", "shown", "meaning"), _column_rows())}"""


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(reference())
    else:
        sys.stdout.write(reference())
