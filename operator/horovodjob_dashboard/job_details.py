"""What the page of a job shows: its pods, its attempts, its events and the lines to copy.

Pure: objects as the API server returns them in, plain records out.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import yaml

from horovodjob import lost_time, training_history
from horovodjob.api.constants import LABEL_EXPERIMENT, LABEL_ROLE, LABEL_SWEEP, LABEL_TRIAL, EventReason, Phase
from horovodjob.client.cluster.kube import event_time
from horovodjob.client.cluster.node_pools import gpu_count
from horovodjob.client.jobs.batchai_records import message
from horovodjob.client.jobs.job_times import point_in_time
from horovodjob.client.jobs.logs import source
from horovodjob_dashboard.job_rows import owner

Object = Mapping[str, Any]
OF_A_TRIAL = (LABEL_SWEEP, LABEL_TRIAL)
MANAGED = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp")
STDOUT = "stdout.txt"
"""The file of all ranks' output in the directory stdouterr of a job's share."""
# The events of an attempt, in the words of the page.
TITLES: dict[str, str] = {
    EventReason.QUEUED: "Queued",
    EventReason.CREATED: "Starting",
    EventReason.ADMITTED: "All pods have a node",
    EventReason.WORKERS_READY: "Workers ready",
    EventReason.STARTED: "Running",
    EventReason.RESTARTING: "Restarting",
    EventReason.PREEMPTED: "Preempted",
    EventReason.RESIZED: "Resized",
    EventReason.SCHEDULING_TIMEOUT: "Not scheduled in time",
    EventReason.SUSPENDED: "Suspended",
    EventReason.RESUMED: "Resumed",
    EventReason.SUCCEEDED: "Succeeded",
    EventReason.FAILED: "Failed",
}
# Open MPI writes its messages between lines of dashes. These repeat that ranks have ended; job.js folds them in logs.
BLOCK_OF_MPIRUN = re.compile(
    r"^(?:\[\d+,\d+\]<\w+>: ?)?-{20,}\n"
    r"(?:(?!(?:\[\d+,\d+\]<\w+>: ?)?-{20,}$).*\n){0,60}?"
    r"(?:\[\d+,\d+\]<\w+>: ?)?"
    r"(?:Primary job|(?:mpirun|prterun)(?: has)? (?:detected|exited|noticed)|MPI_ABORT was invoked).*\n"
    r"(?:(?!(?:\[\d+,\d+\]<\w+>: ?)?-{20,}$).*\n){0,60}?"
    r"(?:\[\d+,\d+\]<\w+>: ?)?-{20,}$\n?",
    re.MULTILINE,
)
ENDS_AN_ATTEMPT = (EventReason.RESTARTING, EventReason.PREEMPTED, EventReason.SCHEDULING_TIMEOUT)


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
    """Something that happened to the job."""

    time: str
    title: str
    text: str
    where: str = ""
    """Pod, node and container of an error."""
    mpirun: str = ""
    """What mpirun writes about the end of the ranks, which is folded."""
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """What happened in an attempt, the oldest first."""

    number: int
    moments: list[Moment]


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event of the job."""

    time: str
    reason: str
    text: str
    count: int
    is_warning: bool


def pod_row(pod: Object) -> PodRow:
    """The row of a pod, with the reason of its container where it has one."""
    status, spec = pod.get("status") or {}, pod["spec"]
    role = pod["metadata"]["labels"][LABEL_ROLE]
    containers = status.get("containerStatuses") or []
    container: Object = next((each for each in containers if each["name"] == role), {})
    waiting = (container.get("state") or {}).get("waiting") or (container.get("state") or {}).get("terminated") or {}
    gpus = sum(gpu_count((each.get("resources") or {}).get("limits") or {}) for each in spec["containers"])
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


def attempts(job: Object, events: Iterable[Object]) -> list[Attempt]:
    """The attempts of the job: from its status, and from its events, which Kubernetes keeps for an hour.

    A restart belongs to the attempt that it ends.
    """
    status = job.get("status") or {}
    errors, last = status.get("errors") or [], max(int(status.get("attempt") or 1), 1)
    found: dict[int, list[Moment]] = {}
    for error in errors:
        found.setdefault(error["attempt"], []).append(_error_moment(error))
    ends = {number: max(_order(each.time) for each in moments) for number, moments in found.items() if number < last}
    for event in events:
        if title := TITLES.get(event["reason"]):
            time, is_warning = event_time(dict(event)), event.get("type") == "Warning"
            moment = Moment(time, title, event.get("message") or "", is_error=is_warning)
            found.setdefault(_attempt_of(event, time, ends, last), []).append(moment)
    for number, moment in _status_moments(job, last):
        known = found.setdefault(number, [])
        if not any(each.title == moment.title for each in known):
            known.append(moment)
    return [
        Attempt(number, sorted(moments, key=lambda moment: _order(moment.time)))
        for number, moments in sorted(found.items())
    ]


def _error_moment(error: Object) -> Moment:
    code = f", exit code {error['exitCode']}" if error.get("exitCode") is not None else ""
    where = ", ".join(str(error[key]) for key in ("pod", "node", "container") if error.get(key))
    text = error.get("message") or ""
    own = BLOCK_OF_MPIRUN.sub("", text).strip("\n")
    mpirun = "\n".join(found[0].strip("\n") for found in BLOCK_OF_MPIRUN.finditer(text))
    return Moment(error["time"], f"{error['reason']}{code}", own, where, mpirun, is_error=True)


def _attempt_of(event: Object, time: str, ends: Mapping[int, datetime], last: int) -> int:
    """The attempt of an event by the times at which attempts ended; the event of a restart comes after its error."""
    if event["reason"] in ENDS_AN_ATTEMPT:
        return max((number for number, end in ends.items() if end <= _order(time)), default=last)
    return min((number for number, end in ends.items() if _order(time) <= end), default=last)


def _status_moments(job: Object, last: int) -> Iterator[tuple[int, Moment]]:
    """The transitions that the status has, for those whose events are gone, each with its attempt."""
    status = job.get("status") or {}
    yield 1, Moment(job["metadata"]["creationTimestamp"], "Created", "")
    if time := status.get("startTime"):
        yield 1, Moment(time, TITLES[EventReason.CREATED], "")
    if time := status.get("runningTime"):
        yield last, Moment(time, TITLES[EventReason.STARTED], "")
    if time := status.get("completionTime"):
        failed = status["phase"] == Phase.FAILED
        yield last, Moment(time, str(status["phase"]), message(status) or "", is_error=failed)


def progress_facts(job: Object) -> list[tuple[str, str]]:
    """What the program reports now, by name: epoch, step, metrics, speed; and the best epoch as it declares it."""
    training = (job.get("status") or {}).get("training") or {}
    facts = []
    for name, of in (("epoch", "epochs"), ("step", "stepsPerEpoch")):
        if training.get(name) is not None:
            total = f" of {training[of]}" if training.get(of) else ""
            facts.append((name.capitalize(), f"{training[name]}{total}"))
    metrics = dict(training.get("metrics") or {})
    facts += [(name, f"{metrics.pop(name):.5g}") for name in training_history.LOSSES[::-1] if name in metrics]
    facts += [(name, f"{value:.5g}") for name, value in metrics.items()]
    facts += [(name, "NaN or infinite") for name in training_history.non_finite(job)]
    if speed := training.get("samplesPerSecond"):
        facts.append(("Samples/s", f"{speed:,.0f}" if speed >= 10 else f"{speed:.3g}"))
    best = training.get("best") or {}
    if best.get("value") is not None:
        facts.append((f"Best {best['metric']}", f"{best['value']:.5g} in epoch {best['epoch']}"))
    if (goodput := training_history.goodput_percent(job)) is not None:
        facts.append(("Goodput", f"{goodput:.3g} %"))
    if slow := training.get("slowestRank"):
        place = f" ({', '.join(str(slow[key]) for key in ('pod', 'node') if slow.get(key))})"
        where = f" in {slow['section']}" if slow.get("section") else ""
        facts.append(("Slowest rank", f"{slow['rank']}{place}, {slow['ratio']:.3g} times the median{where}"))
    if lost := lost_time.lost_time_text(training):
        facts.append(("Lost time", lost))
    return facts


def conditions(job: Object) -> list[Object]:
    """The conditions of the job, those that are True first."""
    found = (job.get("status") or {}).get("conditions") or []
    return sorted(found, key=lambda condition: condition["status"] != "True")


def event_rows(events: Iterable[Object]) -> list[EventRow]:
    """The events of the job, the newest first."""
    return [
        EventRow(
            time=event_time(dict(event)),
            reason=event["reason"],
            text=event.get("message") or "",
            count=(event.get("series") or {}).get("count") or event.get("count") or 1,
            is_warning=event.get("type") == "Warning",
        )
        for event in reversed(list(events))
    ]


def _order(text: str) -> datetime:
    """The time for comparisons; a text that is none is before all others."""
    return point_in_time(text) or datetime.min.replace(tzinfo=UTC)


def manifest(job: Object) -> str:
    """The job as YAML that can be applied again: without its status and what the API server adds."""
    metadata = {key: value for key, value in job["metadata"].items() if key not in MANAGED}
    kept = {"apiVersion": job["apiVersion"], "kind": job["kind"], "metadata": metadata, "spec": job["spec"]}
    return str(yaml.safe_dump(kept, sort_keys=False, allow_unicode=True))


def commands(job: Object) -> list[str]:
    """Lines of kubectl and hvj about the job, to copy."""
    metadata, spec = job["metadata"], job["spec"]
    this = f"-n {metadata['name']} -w {metadata['namespace']}"
    file = f"hvj job file stream -j {metadata['name']} -w {metadata['namespace']} -f {STDOUT}"
    is_suspended = bool((spec.get("runPolicy") or {}).get("suspend"))
    change = f"hvj job {'resume' if is_suspended else 'suspend'} {this}"
    is_finished = (job.get("status") or {}).get("phase") in (Phase.SUCCEEDED, Phase.FAILED)
    return [
        f"kubectl -n {metadata['namespace']} describe hvj {metadata['name']}",
        f"kubectl -n {metadata['namespace']} get hvj {metadata['name']} -o yaml",
        f"hvj job show {this}",
        f"hvj job logs {this} --follow",
        *([file] if spec.get("logs") else []),
        *([] if is_finished else [change, f"hvj job terminate {this}"]),
    ]


def run_again(job: Object) -> list[str]:
    """Commands that create a job with the same spec under another name: with `hvj`, and with kubectl alone."""
    metadata, spec = job["metadata"], job["spec"]
    arguments = [str(each) for each in (spec.get("script") or {}).get("args") or []]
    words = ["hvj", "run", "--from", metadata["name"], "-w", metadata["namespace"]]
    hvj = shlex.join([*words, *(["--", *arguments] if arguments else [])])
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key not in OF_A_TRIAL}
    policy = {key: value for key, value in (spec.get("runPolicy") or {}).items() if key not in ("suspend", "terminate")}
    new = {"generateName": f"{metadata['name'][:40]}-", "namespace": metadata["namespace"], "labels": labels}
    again = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "metadata": {key: value for key, value in new.items() if value},
        "spec": {key: value for key, value in {**spec, "runPolicy": policy}.items() if key != "runPolicy" or value},
    }
    # The lines of the YAML that could end the document are indented or quoted.
    return [hvj, f"kubectl create -f - <<'END'\n{yaml.safe_dump(again, sort_keys=False, allow_unicode=True)}END"]


def link_fields(job: Object) -> dict[str, str]:
    """What links to other tools can have of a job."""
    metadata = job["metadata"]
    return {
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata.get("uid", ""),
        "experiment": str((metadata.get("labels") or {}).get(LABEL_EXPERIMENT, "")),
        "owner": owner(metadata),
    }
