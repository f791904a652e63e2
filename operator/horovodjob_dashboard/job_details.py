"""What the page of a job shows: its pods, its history as a timeline, its cost and the lines to copy.

Pure: objects as the API server returns them in, plain records out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import yaml

from horovodjob.api.constants import LABEL_ROLE
from horovodjob_cli.cluster.kube import event_time
from horovodjob_cli.jobs.logs import source

Object = Mapping[str, Any]
MANAGED = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp")


@dataclass(frozen=True, slots=True)
class PodRow:
    """A pod of the job."""

    source: str
    """launcher, worker-0"""
    name: str
    node: str
    state: str
    restarts: int
    gpus: str
    ready: bool


@dataclass(frozen=True, slots=True)
class Moment:
    """An entry of the timeline."""

    time: str
    title: str
    text: str
    where: str = ""
    is_error: bool = False


def pod_row(pod: Object) -> PodRow:
    """The row of a pod, with the reason of its container where it has one."""
    status, spec = pod.get("status") or {}, pod["spec"]
    role = pod["metadata"]["labels"][LABEL_ROLE]
    containers = status.get("containerStatuses") or []
    container: Object = next((each for each in containers if each["name"] == role), {})
    waiting = (container.get("state") or {}).get("waiting") or (container.get("state") or {}).get("terminated") or {}
    limits = [each.get("resources", {}).get("limits", {}) for each in spec["containers"]]
    gpus = sum(int(amount) for each in limits for name, amount in each.items() if name.endswith("/gpu"))
    conditions = {each["type"]: each for each in status.get("conditions") or []}
    unschedulable = conditions.get("PodScheduled", {})
    reason = waiting.get("reason") or status.get("reason") or unschedulable.get("reason") or ""
    return PodRow(
        source=source(dict(pod)),
        name=pod["metadata"]["name"],
        node=spec.get("nodeName") or "",
        state=" ".join(dict.fromkeys(word for word in (status.get("phase") or "Pending", reason) if word)),
        restarts=sum(each.get("restartCount", 0) for each in containers),
        gpus=str(gpus or ""),
        ready=bool(container.get("ready")),
    )


def timeline(job: Object, events: Iterable[Object]) -> list[Moment]:
    """What happened to the job, the oldest first: conditions, errors of all attempts, and events."""
    status = job.get("status") or {}
    moments = [Moment(job["metadata"]["creationTimestamp"], "Created", "")]
    for condition in status.get("conditions") or []:
        if condition["status"] == "True":
            text = condition.get("message") or ""
            bad = condition["type"] in ("Failed", "Stalled")
            moments.append(Moment(condition["lastTransitionTime"], condition["type"], text, is_error=bad))
    for error in status.get("errors") or []:
        code = f", exit code {error['exitCode']}" if error.get("exitCode") is not None else ""
        where = ", ".join(str(error[key]) for key in ("pod", "node", "container") if error.get(key))
        title = f"Attempt {error['attempt']}: {error['reason']}{code}"
        moments.append(Moment(error["time"], title, error.get("message") or "", where, is_error=True))
    for event in events:
        count = f" ({event['count']} times)" if (event.get("count") or 1) > 1 else ""
        title, is_warning = f"{event['reason']}{count}", event.get("type") == "Warning"
        moments.append(Moment(event_time(dict(event)), title, event.get("message") or "", is_error=is_warning))
    return sorted(moments, key=lambda moment: datetime.fromisoformat(moment.time))


def manifest(job: Object) -> str:
    """The job as YAML that can be applied again: without its status and what the API server adds."""
    metadata = {key: value for key, value in job["metadata"].items() if key not in MANAGED}
    kept = {"apiVersion": job["apiVersion"], "kind": job["kind"], "metadata": metadata, "spec": job["spec"]}
    return str(yaml.safe_dump(kept, sort_keys=False, allow_unicode=True))


def commands(job: Object) -> list[str]:
    """Lines of kubectl and hvj about the job, to copy."""
    namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
    return [
        f"kubectl -n {namespace} get hvj {name} -o yaml",
        f"hvj job show -n {name} -w {namespace}",
        f"hvj job logs -n {name} -w {namespace} --follow",
        f"hvj job terminate -n {name} -w {namespace}",
    ]
