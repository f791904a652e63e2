"""The operator is killed before and after each of its writes: the job ends as in an undisturbed run."""

import contextlib
import itertools
import queue
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from api.client import Api, wait_for
from integration.control_plane import make_namespace
from integration.fault_proxy import NO_FAULT, Fault, FaultProxy, Request
from integration.forked_operator import ForkedOperator, ForkServer
from integration.operator_process import Operator
from integration.scenarios import (
    EVENTS_OF_SHORT_PHASES,
    SCENARIOS,
    SHORT_PHASES,
    SPECS,
    excess_events,
    outcome,
    submit_for,
)

# A run waits most of its time.
PARALLEL_RUNS = 12
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
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
            what = UID.sub("UID", request.body["metadata"]["name"].replace(job, "JOB"))
        case "PATCH", "horovodjobs":
            what = request.body["status"].get("phase", "")
        case "PATCH", _:
            what = next(iter(next(iter(request.body.values()))))
        case _:
            what = UID.sub("UID", "".join(name).replace(job, "JOB"))
    return f"{request.method} {resource} {what}".strip()


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

    def run(self, scenario: str, kill: Kill | None, usual: Counter[str]) -> Run:
        """Runs a job; `usual` are the events of an undisturbed one."""
        name = f"job-{next(NUMBERS)}-x"
        faults = self.proxy.fault = Faults(name, self.operator, kill)
        begin = len(self.proxy.answered)
        job = submit_for(self._api, self.namespace, scenario, name)
        SCENARIOS[scenario](job)
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

    def run(self, scenario: str, kill: Kill | None = None, usual: Counter[str] | None = None) -> Run:
        """Runs a job in a free lane."""
        lane = self._free.get()
        try:
            return lane.run(scenario, kill, usual or Counter())
        finally:
            self._free.put(lane)


@pytest.fixture(scope="module")
def lanes(
    api: Api, operator_access: Path, operator_process: Operator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lanes]:
    operator_process.kill()  # it would reconcile the same jobs
    directory = tmp_path_factory.mktemp("kills")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ForkServer())
        started = Lanes([Lane(api, operator_access, server, directory, stack) for _ in range(PARALLEL_RUNS)])
        stack.enter_context(started.pool)
        yield started


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_job_ends_as_usual_wherever_the_operator_is_killed(lanes: Lanes, scenario: str) -> None:
    undisturbed = lanes.run(scenario)
    writes = undisturbed.writes
    if scenario != "succeeds" and scenario not in SPECS:
        # Until then the writes are those of a job that succeeds, where each of them has its kills.
        writes = writes[writes.index(Write("PATCH horovodjobs Running")) :]
    kills = [Kill(write, is_after) for write in writes for is_after in (False, True)]

    def difference(kill: Kill) -> str:
        try:
            found = lanes.run(scenario, kill, undisturbed.events).outcome
        except Exception as error:
            return f"{kill}: {error}"
        pairs = [(key, found[key], wanted) for key, wanted in undisturbed.outcome.items()]
        parts = [f"{key} {value}, not {wanted}" for key, value, wanted in pairs if value != wanted]
        return f"{kill}: {'; '.join(parts)}" if parts else ""

    if differences := [line for line in lanes.pool.map(difference, kills) if line]:
        pytest.fail("\n".join(differences), pytrace=False)
