"""Runs of jobs in which the operator is killed before or after one of its writes."""

import contextlib
import itertools
import queue
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration.scenarios import EVENTS_OF_SHORT_PHASES, SHORT_PHASES, Scenario, excess_events, outcome
from support.api_client import Api, Object, wait_for
from support.control_plane.operator_control_plane import make_namespace
from support.faults.fault_proxy import NO_FAULT, Fault, FaultProxy, Request
from support.job_driver import Job
from support.operator_process import Operator

# A run waits most of its time.
PARALLEL_RUNS = 8
# The kills of a case are distributed to so many runs: each write has two, so most processes make a write.
RUNS_OF_CASE = 2
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
WORKLOAD = re.compile(r"horovodjob-JOB-[0-9a-f]{5}")
NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Write:
    """A write of the operator, equal in all runs of a scenario."""

    text: str
    occurrence: int = 1

    def __str__(self) -> str:
        return self.text if self.occurrence == 1 else f"{self.text} (number {self.occurrence})"


@dataclass(frozen=True, slots=True)
class Kill:
    """When the operator is killed: before the API server receives the write, or before the operator is answered."""

    write: Write
    is_after: bool

    @property
    def is_at_event(self) -> bool:
        """Whether the write is an event."""
        return " events " in self.write.text

    def __str__(self) -> str:
        return f"{'after' if self.is_after else 'before'} {self.write}"


@dataclass(frozen=True, slots=True)
class Run:
    """What became of a job, the writes about it, and its events."""

    outcome: dict[str, Any]
    writes: list[Write]
    events: Counter[str]


class Faults:
    """Counts the writes about one job, and restarts the operator at some of them, once for each of the kills."""

    def __init__(self, job: str, operator: Operator, kills: Iterable[Kill]) -> None:
        self._job, self._operator = job, operator
        self._counts: Counter[str] = Counter()
        self.writes: list[Write] = []
        """The writes that the API server has received."""
        self.left = set(kills)
        """The kills that are still to come."""

    def __call__(self, request: Request) -> Fault:
        if not request.is_write or not is_about(request, self._job):
            return NO_FAULT
        text = description(request, self._job)
        write = Write(text, self._counts[text] + 1)
        if (before := Kill(write, is_after=False)) in self.left:
            self.left.remove(before)
            return Fault(before=self._operator.restart, reset_before=True)
        self._counts[text] += 1
        self.writes.append(write)
        if (after := Kill(write, is_after=True)) in self.left:
            self.left.remove(after)
            return Fault(after=self._operator.restart, reset_after=True)
        return NO_FAULT

    def missing(self) -> list[str]:
        """The kills that are still to come, without those at writes that only some runs have."""
        # Counts alone, which have no phase, are written together if they change again soon.
        sometimes = ("PATCH horovodjobs", *SHORT_PHASES, *EVENTS_OF_SHORT_PHASES)
        return sorted(str(kill) for kill in self.left if not kill.write.text.endswith(sometimes))


def is_about(request: Request, job: str) -> bool:
    """Whether a write is about this job."""
    return job in f"{request.path} {request.query} {request.body}"


def description(request: Request, job: str) -> str:
    """What a request writes, without the names, UIDs and times that differ from run to run."""
    _, resource, *name = request.path.partition("/namespaces/")[2].split("/")
    match request.method, resource:
        case "POST", "events":
            what = request.body["reason"]
        case "POST", _:
            what = _name(request.body["metadata"]["name"], job)
        case "PATCH", "horovodjobs":
            what = request.body["status"].get("phase", "")
        case "PATCH", "workloads":
            what = _workload_change(request.body)
        case "PATCH", _:
            what = next(iter(next(iter(request.body.values()))))
        case _:
            what = _name("".join(name), job)
    return f"{request.method} {resource} {what}".strip()


def _workload_change(body: Object) -> str:
    """What a request changes of a Workload."""
    if (status := body.get("status")) is None:
        return " ".join(body["spec"] if "spec" in body else body["metadata"])
    if status.get("admission", ...) is None:
        return "without admission"
    last = status["conditions"][-1] if "conditions" in status else {"type": "reclaimablePods", "reason": ""}
    return f"{last['type']} {last['reason']}".strip()


def _name(text: str, job: str) -> str:
    """A name without what differs from run to run."""
    return WORKLOAD.sub("WORKLOAD", UID.sub("UID", text.replace(job, "JOB")))


@dataclass(frozen=True, slots=True)
class Case:
    """What is run again and again: creates a job of a name in a namespace, and carries it to its end."""

    submit: Callable[[Api, str, str], Job]
    scenario: Scenario


class Lane:
    """A namespace, and an operator behind a proxy for it alone."""

    def __init__(self, api: Api, kubeconfig: Path, directory: Path, stack: contextlib.ExitStack) -> None:
        self._api, self.namespace = api, f"kills-{next(NUMBERS)}"
        directory = directory / self.namespace
        directory.mkdir()
        make_namespace(api, self.namespace)
        self.proxy = stack.enter_context(FaultProxy(api, kubeconfig, directory))
        self.operator = Operator(self.proxy.kubeconfig, directory / "log", namespaces=self.namespace)
        stack.callback(self.operator.kill)
        self.operator.restart()

    def run(self, case: Case, kills: Collection[Kill], usual: Counter[str]) -> Run:
        """Runs a job; `usual` are the events of an undisturbed one."""
        name = f"job-{next(NUMBERS)}-x"
        faults = self.proxy.fault = Faults(name, self.operator, kills)
        begin = len(self.proxy.answered)
        job = case.submit(self._api, self.namespace, name)
        case.scenario(job)
        if not kills:
            wait_for("the last event", lambda: job.events()[job.phase])
        try:
            wait_for("the kills", lambda: not faults.missing())
        except AssertionError as error:
            raise AssertionError(f"{error}: {', '.join(faults.missing())}") from error
        found = outcome(job)
        answered = [
            (description(request, name), status)
            for request, status in self.proxy.answered[begin:]
            if request.is_write and is_about(request, name)
        ]
        created = (text for text, status in answered if status == 201 and " events " not in text)
        found["created"] = dict(Counter(created))
        found["excess events"] = excess_events(job, usual) if kills else {}
        events = job.events()
        job.delete()
        # A write that came too late is repeated, and not in each run.
        conflicts = Counter(text for text, status in answered if status == 409)
        totals = Counter(write.text for write in faults.writes)
        usual_writes = [
            write for write in faults.writes if write.occurrence <= totals[write.text] - conflicts[write.text]
        ]
        return Run(found, usual_writes, events)


class Lanes:
    """Runs scenarios, several at a time."""

    def __init__(self, lanes: list[Lane]) -> None:
        self._free: queue.Queue[Lane] = queue.Queue()
        for lane in lanes:
            self._free.put(lane)
        self.pool = ThreadPoolExecutor(len(lanes))

    def run(self, case: Case, kills: Collection[Kill] = (), usual: Counter[str] | None = None) -> Run:
        """Runs a job in a free lane."""
        with self.free_lane() as lane:
            return lane.run(case, kills, usual or Counter())

    @contextlib.contextmanager
    def free_lane(self) -> Iterator[Lane]:
        """A lane that nobody else uses."""
        lane = self._free.get()
        try:
            yield lane
        finally:
            self._free.put(lane)

    def differences(self, case: Case, undisturbed: Run, writes: Iterable[Write]) -> list[str]:
        """How runs with kills before and after each of these writes end otherwise, as sentences."""
        runs = runs_of(kills_at(writes))
        return [line for line in self.pool.map(lambda kills: self.difference(case, undisturbed, kills), runs) if line]

    def difference(self, case: Case, undisturbed: Run, kills: Collection[Kill]) -> str:
        """How a run with all of these kills ends otherwise; empty if it ends as the undisturbed one."""
        try:
            found = self.run(case, kills, undisturbed.events).outcome
        except Exception as error:
            return f"{', '.join(map(str, kills))}: {error}"
        pairs = [(key, found[key], wanted) for key, wanted in undisturbed.outcome.items()]
        wrong = "; ".join(f"{key} {value}, not {wanted}" for key, value, wanted in pairs if value != wanted)
        return f"{', '.join(map(str, kills))}: {wrong}" if wrong else ""


def kills_at(writes: Iterable[Write]) -> list[Kill]:
    """A kill after each of these writes, and one before those that can be the first of a pass.

    A creation follows another write at once, and a kill between two writes is one kill.
    """
    return [Kill(write, is_after) for write in writes for is_after in (False, True) if is_after or not is_child(write)]


def is_child(write: Write) -> bool:
    """Whether the write creates an object of a job."""
    return write.text.startswith("POST ") and not any(f" {kind} " in write.text for kind in ("events", "workloads"))


def runs_of(kills: Sequence[Kill]) -> list[Sequence[Kill]]:
    """The kills of each run. An event that was not posted is lost with the process, so a kill at an event is alone."""
    others = [kill for kill in kills if not kill.is_at_event]
    return [
        *([kill] for kill in kills if kill.is_at_event),
        *(others[first::RUNS_OF_CASE] for first in range(RUNS_OF_CASE)),
    ]


@contextlib.contextmanager
def parallel_lanes(
    api: Api, kubeconfig: Path, shared: Operator, directory: Path, prepare: Callable[[str], object] = str
) -> Iterator[Lanes]:
    """Lanes, each with a namespace that `prepare` completes."""
    shared.kill()  # it would reconcile the same jobs
    with contextlib.ExitStack() as stack:
        lanes = [Lane(api, kubeconfig, directory, stack) for _ in range(PARALLEL_RUNS)]
        for lane in lanes:
            prepare(lane.namespace)
        started = Lanes(lanes)
        stack.enter_context(started.pool)
        yield started
