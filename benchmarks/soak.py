"""A soak of the operator: random jobs, suspensions, deletions and API faults on fake nodes, for some minutes.

    .venv/bin/python benchmarks/soak.py [--minutes 10] [--jobs 20] [--faults 0.05] [--seed 1]

At the end all jobs are deleted. The operator must then have no object, task, timer or connection more than at the
beginning, and flat memory. Exit status: 0 if so, 1 if not. The control plane, the scheduler and kwok are those of
benchmarks/load.py.
"""

import argparse
import contextlib
import random
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from fake_cluster import FakeCluster
from load_systems import COLLECTIONS, NAMESPACE, horovodjob, new_operator

from support.api_client import JOBS, Api, wait_for
from support.control_plane.operator_control_plane import operator_kubeconfig
from support.faults.fault_proxy import NO_FAULT, FaultProxy
from support.faults.random_faults import RandomFaults
from support.operator_process import Operator

WATCH_SECONDS = 30
WATCH_TIMEOUT_SECONDS = "40"
SAMPLE_SECONDS = 2
# Idle connections are closed after 15 s, a half-open watch after its timeout.
SETTLE_SECONDS = 120
MEMORY_GROWTH_MB = 3
SERIES = {
    "tasks": "horovodjob_operator_tasks",
    "timers": "horovodjob_operator_workqueue_delayed",
    "open files and connections": "process_open_fds",
}
PATH = JOBS.format(NAMESPACE)


class Life:
    """One job after the other, each with a random course, until the time is over."""

    def __init__(self, api: Api, number: int, seed: int, end_at: float, courses: Counter[str]) -> None:
        self._api, self._number, self._end_at, self._courses = api, number, end_at, courses
        self._chance = random.Random(f"{seed}-{number}")

    def run(self) -> None:
        """Raises AssertionError if a job does not reach its next phase."""
        courses: tuple[Callable[[str], None], ...] = (
            self._succeed,
            self._suspend,
            self._lose_worker,
            self._delete_early,
            self._scale,
        )
        count = 0
        while time.monotonic() < self._end_at:
            name, course = f"job-{self._number}-{count}", self._chance.choice(courses)
            course(name)
            self._api.delete(f"{PATH}/{name}")
            wait_for(f"{name} to be deleted", lambda: self._api.find(f"{PATH}/{name}") is None)  # noqa: B023
            self._courses[course.__name__.removeprefix("_")] += 1
            count += 1

    def _create(self, name: str, *, ends: bool, **spec: object) -> None:
        body = horovodjob(name, self._chance.randint(1, 4), ends=ends)
        body["spec"] |= spec
        self._api.create(PATH, body)

    def _patch(self, name: str, **spec: object) -> None:
        self._api.patch(f"{PATH}/{name}", {"spec": spec})

    def _wait(self, name: str, phase: str) -> None:
        wait_for(
            f"{name} to be {phase}", lambda: self._api.get(f"{PATH}/{name}").get("status", {}).get("phase") == phase
        )

    def _succeed(self, name: str) -> None:
        self._create(name, ends=True)
        self._wait(name, "Succeeded")

    def _suspend(self, name: str) -> None:
        self._create(name, ends=False)
        self._wait(name, "Running")
        self._patch(name, runPolicy={"suspend": True})
        self._wait(name, "Suspended")
        self._patch(name, runPolicy={"suspend": False})
        self._wait(name, "Running")

    def _lose_worker(self, name: str) -> None:
        self._create(name, ends=False)
        self._wait(name, "Running")
        self._api.delete(f"{COLLECTIONS['pods']}/{name}-worker-0")

        def restarted() -> bool:
            status = self._api.get(f"{PATH}/{name}")["status"]
            return bool(status["attempt"] == 2 and status["phase"] == "Running")

        wait_for(f"attempt 2 of {name}", restarted)

    def _delete_early(self, name: str) -> None:
        self._create(name, ends=True)
        time.sleep(self._chance.uniform(0, 3))

    def _scale(self, name: str) -> None:
        self._create(name, ends=False, elastic={"minReplicas": 1, "maxReplicas": 6})
        self._wait(name, "Running")
        for replicas in (self._chance.randint(1, 6), self._chance.randint(1, 6)):
            self._patch(name, worker={"replicas": replicas})
            wait_for(f"{name} to have {replicas} workers", lambda: self._workers(name) == replicas)  # noqa: B023

    def _workers(self, name: str) -> int:
        query = f"labelSelector=horovodjob.dev/job={name},horovodjob.dev/role=worker"
        return len(self._api.get(f"{COLLECTIONS['pods']}?{query}")["items"])


class Memory(threading.Thread):
    """Samples of the operator's resident memory, in MB."""

    def __init__(self, operator: Operator) -> None:
        super().__init__(daemon=True)
        self._operator, self._ended = operator, threading.Event()
        self.samples: list[float] = []

    def run(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            with contextlib.suppress(AssertionError, OSError):
                self.samples.append(self._operator.metrics()["process_resident_memory_bytes"] / 1e6)

    def end(self) -> None:
        """Stops sampling."""
        self._ended.set()
        self.join()

    @property
    def growth_mb(self) -> float:
        """By how much the last quarter of the time needs more than the third."""
        quarter = len(self.samples) // 4
        third, last = self.samples[2 * quarter : 3 * quarter], self.samples[3 * quarter :]
        return statistics.median(last) - statistics.median(third)


def usage(operator: Operator) -> dict[str, float]:
    """What the operator has in use."""
    metrics = operator.metrics()
    return {what: metrics[series] for what, series in SERIES.items()}


def remaining_objects(api: Api) -> dict[str, int]:
    """Objects that jobs have left, by collection."""
    found = {name: len(api.get(path)["items"]) for name, path in (COLLECTIONS | {"horovodjobs": PATH}).items()}
    return {name: count for name, count in found.items() if count}


def run_jobs(api: Api, options: argparse.Namespace) -> Counter[str]:
    """The number of jobs by course, after the time is over. Raises AssertionError."""
    courses: Counter[str] = Counter()
    end_at = time.monotonic() + options.minutes * 60
    with ThreadPoolExecutor(options.jobs) as pool:
        for life in [pool.submit(Life(api, n, options.seed, end_at, courses).run) for n in range(options.jobs)]:
            life.result()
    return courses


def soak(cluster: FakeCluster, options: argparse.Namespace) -> bool:
    """Prints the figures, and returns whether the operator has used nothing more at the end."""
    api = Api(cluster.kubeconfig)
    api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    wait_for("the namespace", lambda: api.find(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"))
    access = operator_kubeconfig(api, cluster.directory / "operator.kubeconfig")
    with FaultProxy(api, access, cluster.directory) as proxy:
        operator = new_operator(cluster, proxy.kubeconfig, watch_timeout_seconds=WATCH_TIMEOUT_SECONDS).start()
        Life(api, -1, options.seed, time.monotonic() + 1, Counter()).run()
        faults = RandomFaults(rate=options.faults, watch_seconds=WATCH_SECONDS, seed=options.seed)
        before, memory = usage(operator), Memory(operator)
        proxy.fault = lambda request: NO_FAULT if "/leases/" in request.path else faults(request)
        memory.start()
        courses = run_jobs(api, options)
        memory.end()
        proxy.fault = lambda _: NO_FAULT
        print(f"jobs: {dict(courses)}")
        print(f"faults: {dict(faults.counts)}")
        return report(api, operator, before, memory)


def report(api: Api, operator: Operator, before: dict[str, float], memory: Memory) -> bool:
    """Prints what remains, and returns whether it is nothing."""

    def more() -> dict[str, float]:
        return {what: count for what, count in usage(operator).items() if count > before[what]}

    with contextlib.suppress(AssertionError):
        wait_for("the operator to settle", lambda: not more() and not remaining_objects(api), SETTLE_SECONDS)
    after, objects, errors = usage(operator), remaining_objects(api), operator.errors()
    for what in before:
        print(f"{what}: {before[what]:g} before, {after[what]:g} after")
    print(f"objects that remain: {objects or 'none'}")
    print(
        f"memory: {memory.samples[0]:.1f} MB at first, {memory.samples[-1]:.1f} MB at last, "
        f"{memory.growth_mb:+.1f} MB from the third to the last quarter (at most {MEMORY_GROWTH_MB:+d} MB)"
    )
    print(f"errors in the log: {errors or 'none'}")
    return not (more() or objects or errors or memory.growth_mb > MEMORY_GROWTH_MB)


def main() -> int:
    """Exit status 0 if all is as it was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="how long (default: 10)")
    parser.add_argument("--jobs", type=int, default=20, help="jobs at the same time (default: 20)")
    parser.add_argument("--faults", type=float, default=0.05, help="share of faulty answers (default: 0.05)")
    parser.add_argument("--seed", type=int, default=1, help="seed of jobs and faults (default: 1)")
    options = parser.parse_args()
    with FakeCluster() as cluster:
        passed = soak(cluster, options)
    print("PASSED" if passed else "FAILED")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
