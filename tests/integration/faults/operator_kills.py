"""Runs of jobs in which the operator is killed before or after one of its writes."""

import contextlib
import itertools
import queue
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration.faults.forked_operator import ForkedOperator, ForkServer
from integration.scenarios import EVENTS_OF_SHORT_PHASES, SHORT_PHASES, Scenario, excess_events, outcome
from support.api_client import Api, wait_for
from support.control_plane.operator_control_plane import make_namespace
from support.faults.fault_proxy import NO_FAULT, Fault, FaultProxy, Request
from support.job_driver import Job
from support.operator_process import Operator

# A run waits most of its time.
PARALLEL_RUNS = 12
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

    def __str__(self) -> str:
        return f"{'after' if self.is_after else 'before'} {self.write}"


@dataclass(frozen=True, slots=True)
class Run:
    """What became of a job, the writes about it, and its events."""

    outcome: dict[str, Any]
    writes: list[Write]
    events: Counter[str]


class Faults:
    """Counts the writes about one job, and restarts the operator at one of them."""

    def __init__(self, job: str, operator: ForkedOperator, kill: Kill | None) -> None:
        self._job, self._operator, self._kill = job, operator, kill
        self._seen: Counter[str] = Counter()
        self.writes: list[Write] = []

    def __call__(self, request: Request) -> Fault:
        if not request.is_write or not is_about(request, self._job):
            return NO_FAULT
        text = description(request, self._job)
        self._seen[text] += 1
        self.writes.append(Write(text, self._seen[text]))
        if self._kill is None or self.writes[-1] != self._kill.write:
            return NO_FAULT
        if self._kill.is_after:
            return Fault(after=self._operator.restart, reset_after=True)
        return Fault(before=self._operator.restart, reset_before=True)


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
            what = _name("".join(name), job)
        case "PATCH", _:
            what = next(iter(next(iter(request.body.values()))))
        case _:
            what = _name("".join(name), job)
    return f"{request.method} {resource} {what}".strip()


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

    def __init__(
        self, api: Api, kubeconfig: Path, server: ForkServer, directory: Path, stack: contextlib.ExitStack
    ) -> None:
        self._api, self.namespace = api, f"kills-{next(NUMBERS)}"
        directory = directory / self.namespace
        directory.mkdir()
        make_namespace(api, self.namespace)
        self.proxy = stack.enter_context(FaultProxy(api, kubeconfig, directory))
        self.operator = ForkedOperator(server, self.proxy.kubeconfig, directory / "log", namespaces=self.namespace)
        stack.callback(self.operator.kill)
        self.operator.start()

    def run(self, case: Case, kill: Kill | None, usual: Counter[str]) -> Run:
        """Runs a job; `usual` are the events of an undisturbed one."""
        name = f"job-{next(NUMBERS)}-x"
        faults = self.proxy.fault = Faults(name, self.operator, kill)
        begin = len(self.proxy.answered)
        job = case.submit(self._api, self.namespace, name)
        case.scenario(job)
        if kill is None:
            wait_for("the last event", lambda: job.events()[job.phase])
        elif not kill.write.text.endswith((*SHORT_PHASES, *EVENTS_OF_SHORT_PHASES)):
            wait_for(f"a write {kill.write}", lambda: kill.write in faults.writes)
        found = outcome(job)
        created = (
            description(request, name)
            for request, status in self.proxy.answered[begin:]
            if (request.method, status) == ("POST", 201) and is_about(request, name) and "/events" not in request.path
        )
        found["created"] = dict(Counter(created))
        found["excess events"] = excess_events(job, usual) if kill else {}
        events = job.events()
        job.delete()
        return Run(found, faults.writes, events)


class Lanes:
    """Runs scenarios, several at a time."""

    def __init__(self, lanes: list[Lane]) -> None:
        self._free: queue.Queue[Lane] = queue.Queue()
        for lane in lanes:
            self._free.put(lane)
        self.pool = ThreadPoolExecutor(len(lanes))

    def run(self, case: Case, kill: Kill | None = None, usual: Counter[str] | None = None) -> Run:
        """Runs a job in a free lane."""
        lane = self._free.get()
        try:
            return lane.run(case, kill, usual or Counter())
        finally:
            self._free.put(lane)

    def differences(self, case: Case, undisturbed: Run, writes: Iterable[Write]) -> list[str]:
        """How runs with a kill before or after each of these writes end otherwise, as sentences."""

        def difference(kill: Kill) -> str:
            try:
                found = self.run(case, kill, undisturbed.events).outcome
            except Exception as error:
                return f"{kill}: {error}"
            pairs = [(key, found[key], wanted) for key, wanted in undisturbed.outcome.items()]
            parts = [f"{key} {value}, not {wanted}" for key, value, wanted in pairs if value != wanted]
            return f"{kill}: {'; '.join(parts)}" if parts else ""

        kills = [Kill(write, is_after) for write in writes for is_after in (False, True)]
        return [line for line in self.pool.map(difference, kills) if line]


@contextlib.contextmanager
def parallel_lanes(
    api: Api, kubeconfig: Path, shared: Operator, directory: Path, prepare: Callable[[str], object] = str
) -> Iterator[Lanes]:
    """Lanes, each with a namespace that `prepare` completes."""
    shared.kill()  # it would reconcile the same jobs
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ForkServer())
        lanes = [Lane(api, kubeconfig, server, directory, stack) for _ in range(PARALLEL_RUNS)]
        for lane in lanes:
            prepare(lane.namespace)
        started = Lanes(lanes)
        stack.enter_context(started.pool)
        yield started
