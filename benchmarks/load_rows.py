"""The rows of benchmarks/load.py: what is submitted, and the figures that come of it."""

import asyncio
import copy
import os
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from audit import answered, budget, calls, requested
from etcd_size import compacted_size_mb
from load_queue import UNLIMITED, queue_of
from load_systems import NAMESPACE, Floor, FloorWithStatus, MpiOperatorSystem, OperatorSystem, System
from observer import Milestone, Object, ObservedJob
from usage import memory_mb, peak_memory_mb, processor_seconds

Figures = dict[str, float]
WARM_UP_JOBS = 20
# Ends a row that makes no progress at all.
LONGEST_SECONDS = 1800
RENEWAL = "update leases"


class Row(ABC):
    """Something to measure."""

    systems: tuple[str, ...] = (Floor.name, FloorWithStatus.name, OperatorSystem.name, MpiOperatorSystem.name)
    warm_up = True

    async def measure(self, system: System, scale: float) -> Figures:
        """The figures of one system. Raises SystemEnded, TimeoutError."""
        async with system:
            if self.warm_up:
                await run_jobs(system, [f"warm-{number}" for number in range(WARM_UP_JOBS)], 2)
                await last_calls(system)
            return await self.run(system, scale)

    @abstractmethod
    async def run(self, system: System, scale: float) -> Figures:
        """Submits and waits."""


async def guarded(system: System, work: Awaitable[object], seconds: float = LONGEST_SECONDS) -> None:
    """Waits for the work. Raises what has ended the system, or TimeoutError."""
    task = asyncio.ensure_future(work)
    try:
        async with asyncio.timeout(seconds):
            while not (await asyncio.wait((task,), timeout=1))[0]:
                system.check()
                system.observer.check()
        task.result()
    finally:
        task.cancel()


async def submitted(system: System, names: Iterable[str], workers: int, *, ends: bool = True) -> list[ObservedJob]:
    """Jobs that are submitted all at once."""
    return await asyncio.gather(*(system.submit(name, workers, ends=ends) for name in names))


async def run_jobs(system: System, names: Iterable[str], workers: int) -> list[ObservedJob]:
    """Jobs that are submitted all at once, when they have ended."""
    jobs: list[ObservedJob] = []

    async def work() -> None:
        jobs.extend(await submitted(system, names, workers))
        await reach(jobs, *system.end)

    await guarded(system, work())
    return jobs


async def reach(jobs: Iterable[ObservedJob], *milestones: Milestone) -> None:
    """Waits until all jobs have reached all milestones."""
    await asyncio.gather(*(job.reach(*milestones) for job in jobs))


def seconds(jobs: Iterable[ObservedJob], *milestones: Milestone) -> list[float]:
    """The time of each job from its creation until it has reached all milestones."""
    return [max(job.after(milestone) for milestone in milestones) for job in jobs]


def numbered(prefix: str, count: float) -> list[str]:
    """Names of so many jobs, at least one."""
    return [f"{prefix}-{number}" for number in range(max(1, round(count)))]


def percentiles(what: str, seconds: Iterable[float]) -> Figures:
    """p50 and p99 in milliseconds."""
    ordered = sorted(seconds)
    last = ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]
    return {f"{what}, p50, ms": statistics.median(ordered) * 1000, f"{what}, p99, ms": last * 1000}


def moment() -> str:
    """Now, as the audit log writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Usage:
    """What a stretch of time has cost: API calls, processor time, memory."""

    def __init__(self, system: System) -> None:
        self._system, self._since = system, moment()
        self._apiserver = system.cluster.pid("kube-apiserver")
        self._before = self._used()

    def _used(self) -> tuple[float, float]:
        pid = self._system.pid
        return processor_seconds(self._apiserver), processor_seconds(pid) if pid else 0

    def figures(self, jobs: int) -> Figures:
        """Costs a job, and the memory of the process."""
        apiserver, own = (now - before for now, before in zip(self._used(), self._before, strict=True))
        asked = calls(self._system.cluster.audit_log, self._system.agent, self._since)
        writes = {name: count for name, count in asked.items() if name != RENEWAL and not name.startswith("watch ")}
        found = {
            "API calls a job": sum(writes.values()) / jobs,
            "API server CPU a job, ms": apiserver / jobs * 1000,
        }
        if self._system.pid:
            found["operator CPU a job, ms"] = own / jobs * 1000
            found["memory, peak, MB"] = peak_memory_mb(self._system.pid)
        return found

    def over_budget(self, jobs: int, workers: int, *, is_queued: bool = False) -> Figures:
        """How many calls there were that the budget does not have."""
        asked = calls(self._system.cluster.audit_log, self._system.agent, self._since)
        allowed = budget(workers, is_queued=is_queued)
        over = {
            name: count - jobs * allowed.get(name, 0)
            for name, count in asked.items()
            if name != RENEWAL and not name.startswith("watch ") and count > jobs * allowed.get(name, 0)
        }
        if over:
            print("  over the budget: " + ", ".join(f"{name} {count}" for name, count in sorted(over.items())))
        return {"calls over the budget": float(sum(over.values()))}


@dataclass(frozen=True)
class Burst(Row):
    """Jobs of two workers, submitted all at once."""

    jobs: int
    workers = 2

    async def run(self, system: System, scale: float) -> Figures:
        """From the first creation to the moment at which all have succeeded and their workers are gone."""
        names, usage = numbered("burst", self.jobs * scale), Usage(system)
        jobs = await run_jobs(system, names, self.workers)
        ended = max(job.moments[milestone] for job in jobs for milestone in system.end)
        found = {"jobs/s": len(jobs) / (ended - min(job.submitted_at for job in jobs))}
        found |= percentiles("created to launcher pod", (job.after(Milestone.LAUNCHER_CREATED) for job in jobs))
        if Milestone.SUCCEEDED in system.end:
            done = [job.after(Milestone.SUCCEEDED, Milestone.LAUNCHER_DONE) for job in jobs]
            found |= percentiles("launcher done to Succeeded", done)
        await last_calls(system)
        found |= usage.figures(len(jobs))
        if system.name == OperatorSystem.name:
            found |= usage.over_budget(len(jobs), self.workers)
        return found


@dataclass(frozen=True)
class Wide(Row):
    """One job."""

    workers: int

    async def run(self, system: System, scale: float) -> Figures:
        """From the job's creation to that of its last pod."""
        usage = Usage(system)
        (job,) = await submitted(system, ["wide"], max(2, round(self.workers * scale)), ends=False)
        await guarded(system, job.reach(Milestone.PODS_CREATED))
        created = usage.figures(1)
        await guarded(system, job.reach(Milestone.WORKERS_RUN))
        found = {"all pods created, s": job.after(Milestone.PODS_CREATED)}
        return found | {"all workers run, s": job.after(Milestone.WORKERS_RUN)} | created


class Health:
    """Asks a health server each half second, as a kubelet with the default limit of one second."""

    def __init__(self, system: OperatorSystem) -> None:
        self._system = system
        self.seconds: list[float] = []
        self.failures = 0

    async def follow(self) -> None:
        """Asks until cancelled."""
        while True:
            began = time.monotonic()
            status, _ = await asyncio.to_thread(self._system.operator.get, "/healthz")
            self.seconds.append(time.monotonic() - began)
            self.failures += status != 200 or self.seconds[-1] > 1
            await asyncio.sleep(0.5)


@dataclass(frozen=True)
class Mixed(Row):
    """One big job beside small ones, which arrive one after the other while its pods are created."""

    workers: int
    small: int
    systems = (Floor.name, OperatorSystem.name)
    PAUSE_SECONDS = 0.2

    async def run(self, system: System, scale: float) -> Figures:
        """The time of the small ones, from their creation until they run, beside their time without the big one."""
        small, workers = self.small * scale, max(2, round(self.workers * scale))
        alone = await self._small(system, numbered("alone", small))
        health = Health(system) if isinstance(system, OperatorSystem) else None
        following = [asyncio.create_task(health.follow())] if health else []
        since = moment()
        (big,) = await submitted(system, ["big"], workers, ends=False)
        beside = await self._small(system, numbered("beside", small))
        await guarded(system, big.reach(Milestone.WORKERS_RUN))
        system.check()
        for task in following:
            task.cancel()
        ended = self._end(system)
        alone_s, beside_s = (statistics.median(seconds(jobs, *ended)) for jobs in (alone, beside))
        found = {
            "small jobs alone, p50, s": alone_s,
            "small jobs beside the big one, p50, s": beside_s,
            "small jobs beside the big one to alone, p50": beside_s / alone_s,
            "small jobs beside the big one, longest, s": max(seconds(beside, *ended)),
            "small jobs alone, all pods created, p50, s": statistics.median(seconds(alone, Milestone.PODS_CREATED)),
            "small jobs beside, all pods created, p50, s": statistics.median(seconds(beside, Milestone.PODS_CREATED)),
            "big job: all pods created, s": big.after(Milestone.PODS_CREATED),
            "big job: all workers run, s": big.after(Milestone.WORKERS_RUN),
        }
        return found | (self._life(system, health, since) if isinstance(system, OperatorSystem) and health else {})

    def _end(self, system: System) -> tuple[Milestone, ...]:
        """The workers run, and the status of a HorovodJob says so."""
        return (Milestone.WORKERS_RUN, *([Milestone.RUNNING] if Milestone.SUCCEEDED in system.end else []))

    async def _small(self, system: System, names: list[str]) -> list[ObservedJob]:
        """Jobs that are submitted one after the other, when they run."""
        jobs: list[ObservedJob] = []

        async def work() -> None:
            for name in names:
                jobs.append(await system.submit(name, 2, ends=False))
                await asyncio.sleep(self.PAUSE_SECONDS)
            await reach(jobs, Milestone.PODS_CREATED, *self._end(system))

        await guarded(system, work())
        return jobs

    def _life(self, system: OperatorSystem, health: Health, since: str) -> Figures:
        complaints = system.operator.errors()
        events = list(answered(system.cluster.audit_log, system.agent, since))
        renewals = [
            datetime.fromisoformat(one["requestReceivedTimestamp"]) for one in events if requested(one) == RENEWAL
        ]
        pauses = [(after - before).total_seconds() for before, after in pairwise(renewals)]
        return {
            "Leases lost": float(sum("lease: lost" in line for line in complaints)),
            "longest time between two renewals, s": max(pauses, default=0),
            "healthz not answered within 1 s": float(health.failures),
            "healthz, slowest answer, ms": max(health.seconds, default=0) * 1000,
            "memory, peak, MB": peak_memory_mb(system.operator.pid),
        }


@dataclass(frozen=True)
class History(Row):
    """An operator that starts among many jobs that have ended, and some that run."""

    finished: int
    live: int
    systems = (OperatorSystem.name,)
    warm_up = False

    async def run(self, system: System, scale: float) -> Figures:
        """From the start of the process to the first pod of a job that was created while it was away."""
        assert isinstance(system, OperatorSystem)
        (ended,) = await run_jobs(system, ["ended"], 2)
        live = await submitted(system, numbered("live", self.live * scale), 2, ends=False)
        await guarded(system, reach(live, Milestone.RUNNING))
        system.stop()
        before = compacted_size_mb(system.cluster.settings)
        await guarded_away(self._finish(system, ended.name, round(self.finished * scale)))
        stored = compacted_size_mb(system.cluster.settings) - before
        new = await system.submit("zz-new", 2)  # the last of the list, which is in the order of names
        began = time.monotonic()
        await asyncio.to_thread(system.operator.start)  # beside the observer, which notes the moments
        system.pid = system.operator.pid
        await guarded(system, new.reach(Milestone.LAUNCHER_CREATED, *system.end))
        await quiet(system.operator.pid)
        return {
            "start to first new pod, s": new.moments[Milestone.LAUNCHER_CREATED] - began,
            "CPU until idle, s": processor_seconds(system.operator.pid),
            "memory, peak, MB": peak_memory_mb(system.operator.pid),
            "memory when idle, MB": memory_mb(system.operator.pid),
            "etcd, of the finished jobs, MB": stored,
        }

    async def _finish(self, system: OperatorSystem, name: str, count: int) -> None:
        """So many jobs like the one with this name, which the operator itself has run to its end."""
        model = await system.user.request("GET", f"{system.jobs_path}/{name}")
        model["status"]["completionTime"] = (datetime.now(UTC) - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")

        async def copied(number: int) -> None:
            body = copy_of(model, f"done-{number}")
            await system.user.request("POST", system.jobs_path, body)
            await system.user.request("PATCH", f"{system.jobs_path}/done-{number}/status", {"status": model["status"]})

        await asyncio.gather(*(copied(number) for number in range(count)))


async def guarded_away(work: Awaitable[object]) -> None:
    """Waits for work while the operator is away. Raises TimeoutError."""
    async with asyncio.timeout(LONGEST_SECONDS):
        await work


def copy_of(model: Object, name: str) -> Object:
    """A job with the same spec and labels."""
    body = {key: copy.deepcopy(model[key]) for key in ("apiVersion", "kind", "spec")}
    return body | {"metadata": {"name": name, "labels": model["metadata"].get("labels", {})}}


async def quiet(pid: int, seconds: float = 3) -> None:
    """Waits until the process uses less than a tenth of a processor."""
    while True:
        before = processor_seconds(pid)
        await asyncio.sleep(seconds)
        if processor_seconds(pid) - before < seconds / 10:
            return


async def last_calls(system: System) -> None:
    """Waits until a process has posted the events of the jobs that have ended, and deleted their Secrets."""
    if system.pid:
        await quiet(system.pid)


@dataclass(frozen=True)
class Idle(Row):
    """A minute without jobs."""

    seconds: float
    systems = (OperatorSystem.name,)

    async def run(self, system: System, scale: float) -> Figures:
        """Memory and calls after the jobs of the warm-up."""
        assert isinstance(system, OperatorSystem)
        pid = system.operator.pid
        await quiet(pid)
        since, before = moment(), processor_seconds(pid)
        await asyncio.sleep(self.seconds * scale)
        asked = calls(system.cluster.audit_log, system.agent, since)
        # A watch that ends in time is opened again.
        others = {name: count for name, count in asked.items() if name != RENEWAL and not name.startswith("watch ")}
        if others:
            print(f"  calls: {others}")
        return {
            "memory, MB": memory_mb(pid),
            "CPU a minute, ms": (processor_seconds(pid) - before) / (self.seconds * scale) * 60000,
            "Lease renewals": float(asked[RENEWAL]),
            "calls but Lease renewals": float(sum(others.values())),
        }


class ProcessorTime:
    """The processor time that each process uses for a job of a stretch of time."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids, self._before = pids, {name: processor_seconds(pid) for name, pid in pids.items()}

    def figures(self, stretch: str, jobs: int) -> Figures:
        """Milliseconds a job."""
        used = {name: processor_seconds(pid) - self._before[name] for name, pid in self._pids.items()}
        return {
            f"{stretch}: {name}, ms": seconds / jobs * 1000
            for name, seconds in (used | {"all": sum(used.values())}).items()
        }


@dataclass(frozen=True)
class Queued(Row):
    """Jobs in a queue that has room for some of them, and the same jobs without one, as many at a time.

    Those without one run twice: in a cluster without Kueue, and beside it, for its webhooks see every pod.
    """

    jobs: int
    room: int
    strategy: str = "BestEffortFIFO"
    limits: dict[str, Any] = field(default_factory=lambda: UNLIMITED)
    workers = 2
    systems = (OperatorSystem.name,)

    async def run(self, system: System, scale: float) -> Figures:
        """Without a queue, the user submits a job when one has ended; with it, all at once."""
        assert isinstance(system, OperatorSystem)
        count = max(1, round(self.jobs * scale))
        pids = {**system.cluster.pids, "operator": system.operator.pid, "this program": os.getpid()}
        found = await self._alone(system, "without Kueue", count, pids)
        with queue_of(system.cluster, NAMESPACE, [self.workers] * self.room, self.limits) as (queue, kueue):
            pids["Kueue"] = kueue.pid
            queue.change(queueingStrategy=self.strategy)
            # The operator reads the queue's objects once.
            await guarded(system, reach([await system.submit_to(queue, "first", self.workers)], *system.end))
            found |= await self._alone(system, "beside Kueue", count, pids)
            usage, used, jobs = Usage(system), ProcessorTime(pids), list[ObservedJob]()
            since = moment()

            async def all_queued() -> None:
                names = numbered("queued", count)
                jobs.extend(await asyncio.gather(*(system.submit_to(queue, name, self.workers) for name in names)))
                await reach(jobs, *system.end)

            await guarded(system, all_queued())
            await last_calls(system)
            found["queued: jobs/s"] = self._rate(jobs, system)
            for other in ("without Kueue", "beside Kueue"):
                found[f"queued: time to {other}"] = found[f"{other}: jobs/s"] / found["queued: jobs/s"]
            found["Kueue's API calls a job"] = sum(calls(system.cluster.audit_log, "kueue", since).values()) / count
            found |= used.figures("queued", count) | usage.figures(count)
            return found | usage.over_budget(count, self.workers, is_queued=True)

    async def _alone(self, system: OperatorSystem, stretch: str, count: int, pids: dict[str, int]) -> Figures:
        places, used = asyncio.Semaphore(self.room), ProcessorTime(pids)

        async def alone(name: str) -> ObservedJob:
            async with places:
                job = await system.submit(name, self.workers)
                await job.reach(*system.end)
                return job

        jobs: list[ObservedJob] = []

        async def all_alone() -> None:
            jobs.extend(
                await asyncio.gather(*(alone(name) for name in numbered(stretch.replace(" ", "-").lower(), count)))
            )

        await guarded(system, all_alone())
        await last_calls(system)
        return {f"{stretch}: jobs/s": self._rate(jobs, system)} | used.figures(stretch, count)

    def _rate(self, jobs: list[ObservedJob], system: System) -> float:
        ended = max(job.moments[milestone] for job in jobs for milestone in system.end)
        return len(jobs) / (ended - min(job.submitted_at for job in jobs))


ROWS: dict[str, Row] = {
    "burst-200": Burst(200),
    "burst-1000": Burst(1000),
    "wide": Wide(1000),
    "mixed": Mixed(5000, 100),
    "history": History(10000, 300),
    "idle": Idle(60),
    "queued": Queued(200, 20),
    "queued-strict": Queued(200, 20, "StrictFIFO"),
    "queued-limited": Queued(200, 20, limits={}),
}
