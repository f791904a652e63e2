"""Jobs in queues of the real Kueue, side by side: HorovodJobs with this operator, MPIJobs with mpi-operator.

Kueue has an integration for MPIJobs of its own. Each scenario prints what was seen of both kinds. MPI_OPERATOR is the
path of mpi-operator, built from its module; the nodes are fake (benchmarks/fake_cluster.py).

    MPI_OPERATOR=... python benchmarks/queue_scenarios.py
"""

import asyncio
import itertools
import os
import random
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

from audit import calls
from fake_cluster import FakeCluster, is_ready
from load_systems import MpiOperatorSystem, OperatorSystem, System
from observer import JOB, ROLE

from support.api_client import JOBS, Api, Object, wait_for
from support.job_driver import timestamp
from support.kueue.controller import Kueue
from support.kueue.queues import (
    API,
    LABEL,
    PRIORITY_LABEL,
    REQUESTS,
    Queue,
    condition_of,
    create_priority_classes,
    recorded_violations,
    workload_of,
)

NUMBERS = itertools.count(1)
KILLS = 12
SOON = 30.0
"""Seconds after which something is reported as not seen."""


@dataclass
class Side(ABC):
    """One kind of job, with the processes that run it."""

    cluster: FakeCluster
    kueue: Kueue
    system: System
    kind: ClassVar[str]
    replicas: ClassVar[tuple[str, ...]]
    """Path of the number of workers in a job."""

    @property
    def api(self) -> Api:
        return self.system.api

    @abstractmethod
    def collection(self, namespace: str) -> str:
        """Path of the jobs of a namespace."""

    @abstractmethod
    def body(self, name: str, workers: int, *, ends: bool) -> Object:
        """A job with the requests for which a queue has room."""

    @abstractmethod
    def phase(self, job: Object) -> str:
        """Running, Succeeded, Failed, Suspended, or another word for waiting."""

    @abstractmethod
    def kill(self) -> None:
        """Kills the operator."""

    @abstractmethod
    def start(self) -> None:
        """Starts the operator again."""

    def submit(
        self, queue: Queue, name: str = "train", workers: int = 2, *, ends: bool = False, priority: str = ""
    ) -> "Run":
        """Creates a job in a queue; its launcher succeeds after a second, or never."""
        self.api.create(
            self.collection(queue.namespace), self.body_in(queue, name, workers, ends=ends, priority=priority)
        )
        return Run(self, queue.namespace, name)

    def body_in(self, queue: Queue, name: str, workers: int, *, ends: bool = False, priority: str = "") -> Object:
        """A job in a queue, with a priority class of Kueue."""
        body = self.body(name, workers, ends=ends)
        body["metadata"]["labels"] = {LABEL: queue.name} | ({PRIORITY_LABEL: priority} if priority else {})
        return body

    def scalable(self, body: Object) -> Object:
        """The job as one whose number of workers may change while it runs, up to 6."""
        return body

    def phases(self, namespace: str) -> Counter[str]:
        """The number of jobs by phase."""
        return Counter(self.phase(job) for job in self.api.items(self.collection(namespace)))


class HorovodJobs(Side):
    kind = "HorovodJob"
    replicas = ("spec", "worker", "replicas")
    system: OperatorSystem

    def collection(self, namespace: str) -> str:
        return JOBS.format(namespace)

    def body(self, name: str, workers: int, *, ends: bool) -> Object:
        body = self.system.job(name, workers, ends=ends)
        body["spec"]["worker"] |= REQUESTS["worker"]
        body["spec"]["launcher"] |= REQUESTS["launcher"]
        return body

    def phase(self, job: Object) -> str:
        return str(job.get("status", {}).get("phase"))

    def scalable(self, body: Object) -> Object:
        return body | {"spec": body["spec"] | {"elastic": {"minReplicas": 1, "maxReplicas": 6}}}

    def kill(self) -> None:
        self.system.operator.kill()

    def start(self) -> None:
        self.system.operator.start()


class MpiJobs(Side):
    kind = "MPIJob"
    replicas = ("spec", "mpiReplicaSpecs", "Worker", "replicas")
    system: MpiOperatorSystem

    def collection(self, namespace: str) -> str:
        return f"/apis/kubeflow.org/v2beta1/namespaces/{namespace}/mpijobs"

    def body(self, name: str, workers: int, *, ends: bool) -> Object:
        body = self.system.job(name, workers, ends=ends)
        for role, fields in REQUESTS.items():
            (container,) = body["spec"]["mpiReplicaSpecs"][role.title()]["template"]["spec"]["containers"]
            container |= fields
        return body

    def phase(self, job: Object) -> str:
        conditions = job.get("status", {}).get("conditions", ())
        now = {one["type"] for one in conditions if one["status"] == "True"}
        return next((phase for phase in ("Succeeded", "Failed", "Suspended", "Running") if phase in now), "Created")

    def kill(self) -> None:
        self.system.stop()

    def start(self) -> None:
        self.system.start()


@dataclass
class Run:
    """A job of one of the kinds."""

    side: Side
    namespace: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.side.collection(self.namespace)}/{self.name}"

    @property
    def job(self) -> Object:
        return self.side.api.get(self.path)

    @property
    def phase(self) -> str:
        return self.side.phase(self.job)

    def pods(self, *roles: str) -> list[Object]:
        """Pods that have not ended, of these roles or of all."""
        return [
            pod
            for pod in self.side.api.items(f"/api/v1/namespaces/{self.namespace}/pods")
            if pod["metadata"]["labels"].get(JOB) == self.name
            and pod["status"].get("phase") not in ("Succeeded", "Failed")
            and (not roles or pod["metadata"]["labels"][ROLE] in roles)
        ]

    def runs(self, workers: int) -> bool:
        """Whether the launcher and so many workers are ready."""
        ready = [pod for pod in self.pods() if is_ready(pod)]
        found = Counter(pod["metadata"]["labels"][ROLE] == "worker" for pod in ready)
        return found == {True: workers, False: 1}

    @property
    def workload(self) -> Object:
        """The newest Workload of the job."""
        return workload_of(self.side.api, self.namespace, self.job["metadata"]["uid"])

    def workload_condition(self, kind: str) -> str:
        """Status of a condition of the Workload."""
        return str(condition_of(self.workload, kind).get("status", "absent"))

    def patch_workload(self, body: Object) -> None:
        metadata = self.workload["metadata"]
        self.side.api.patch(f"{API}/namespaces/{self.namespace}/workloads/{metadata['name']}", body)

    def set_suspended(self, suspended: bool) -> None:
        """What a user does to suspend or resume the job."""
        self.side.api.patch(self.path, {"spec": {"runPolicy": {"suspend": suspended}}})

    def scale(self, workers: int) -> None:
        body: Object = {self.side.replicas[-1]: workers}
        for key in reversed(self.side.replicas[:-1]):
            body = {key: body}
        self.side.api.patch(self.path, body)

    def end_launcher(self, exit_code: int) -> None:
        """Reports that mpirun has ended."""
        (pod,) = self.pods("launcher", "mpi-launcher")
        reason = "Error" if exit_code else "Completed"
        ended = {"terminated": {"exitCode": exit_code, "reason": reason, "finishedAt": timestamp()}}
        statuses = [one | {"ready": False, "state": ended} for one in pod["status"]["containerStatuses"]]
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"
        phase = "Failed" if exit_code else "Succeeded"
        self.side.api.patch(path, {"status": {"phase": phase, "containerStatuses": statuses}})


def seen(condition: Callable[[], Any], seconds: float = SOON) -> float | None:
    """Seconds until something is so; None: not within this time."""
    begin = time.monotonic()
    while (passed := time.monotonic() - begin) < seconds:
        if condition():
            return passed
        time.sleep(0.1)
    return None


def after(seconds: float | None) -> str:
    return "not within 30 s" if seconds is None else f"after {seconds:.1f} s"


def new_queue(side: Side, *workers: int, name: str = "gpus") -> Queue:
    """A queue in a namespace of its own; its flavor has no labels, as the fake nodes."""
    namespace = f"queues-{next(NUMBERS)}"
    side.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_for("its service account", lambda: side.api.find(account))
    queue = Queue(side.api, namespace, *workers, name=name)
    queue.put("resourceflavors", "ResourceFlavor", f"{namespace}-spot", {})
    return queue


# ---- scenarios -----------------------------------------------------------------------------------------------


def late_restart(side: Side) -> str:
    """mpirun fails; the new launcher finds no node until Kueue, which waits 5 s for pods, has taken the quota."""
    strategy = {"timestamp": "Eviction", "backoffLimitCount": 2, "backoffBaseSeconds": 1}
    wait = {"timeout": "5s", "recoveryTimeout": "5s", "requeuingStrategy": strategy}
    side.kueue.restart(**side.kueue.settings | {"waitForPodsReady": wait})
    try:
        run = side.submit(new_queue(side, 2))
        wait_for("the job to run", lambda: run.runs(2))
        cordon(side, True)
        run.end_launcher(1)
        evicted = seen(lambda: run.workload_condition("Evicted") == "True")
        meanwhile = f"{run.phase}, quota {run.workload_condition('QuotaReserved')}, {len(run.pods())} pods"
        cordon(side, False)
        again = seen(lambda: run.runs(2) and run.workload_condition("PodsReady") == "True", 60)
        time.sleep(10)  # longer than the timeout: is it evicted again?
        count = run.workload.get("status", {}).get("requeueState", {}).get("count", 0)
        stays = "and stays" if run.runs(2) else "and is evicted again"
        return f"evicted {after(evicted)} ({meanwhile}); runs {after(again)} {stays}; {count} requeues; {run.phase}"
    finally:
        cordon(side, False)
        side.kueue.restart(**{k: v for k, v in side.kueue.settings.items() if k != "waitForPodsReady"})


def cordon(side: Side, unschedulable: bool) -> None:
    for node in side.api.items("/api/v1/nodes"):
        side.api.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"unschedulable": unschedulable}})


def default_queue(side: Side) -> str:
    """A LocalQueue `default`, Kueue's default configuration, and a job that names no queue."""
    settings = side.kueue.settings
    side.kueue.restart(**{k: v for k, v in settings.items() if k != "integrations"})
    try:
        queue = new_queue(side, 2, name="default")
        body = side.body("train", 2, ends=False)
        side.api.create(side.collection(queue.namespace), body)
        run = Run(side, queue.namespace, "train")
        ran = seen(lambda: run.runs(2))
        owners = Counter(
            owner["kind"]
            for one in side.api.items(f"{API}/namespaces/{queue.namespace}/workloads")
            for owner in one["metadata"].get("ownerReferences", ())
        )
        words = "" if ran is not None else f"; {message_of(run.job)}"
        return f"runs {after(ran)}, Workloads of {dict(owners)}{words}"
    finally:
        side.kueue.restart(**settings)


def message_of(job: Object) -> str:
    conditions = job.get("status", {}).get("conditions", ())
    return " | ".join(one["message"] for one in conditions if one["status"] == "False" and one.get("message"))


def end_without_kueue(side: Side) -> str:
    """A job ends while Kueue, with its webhooks, is away."""
    run = side.submit(new_queue(side, 2))
    wait_for("the job to run", lambda: run.runs(2))
    side.kueue.kill()
    try:
        run.end_launcher(0)
        ended = seen(lambda: run.phase == "Succeeded")
        gone = seen(lambda: not run.pods())
    finally:
        side.kueue.start(**side.kueue.settings)
    given_back = seen(lambda: run.workload_condition("Finished") == "True")
    return f"Succeeded {after(ended)}, workers gone {after(gone)}; quota back {after(given_back)} of Kueue's return"


def hold(side: Side) -> str:
    """An administrator deactivates the Workload; the user suspends the job and resumes it."""
    run = side.submit(new_queue(side, 2))
    wait_for("the job to run", lambda: run.runs(2))
    run.patch_workload({"spec": {"active": False}})
    stopped = seen(lambda: not run.pods())
    run.set_suspended(True)
    time.sleep(2)
    run.set_suspended(False)
    created = seen(run.pods, 10)
    time.sleep(5)
    words = "no pods" if created is None else "pods were created"
    return f"stopped {after(stopped)}; after the resumption {words}, 5 s later {len(run.pods())} of 3"


def resize(side: Side) -> str:
    """A running job is scaled from 5 workers to 1, and to 6; its queue has room for 6."""
    queue = new_queue(side, 6)
    side.api.create(side.collection(queue.namespace), side.scalable(side.body_in(queue, "train", 5)))
    run = Run(side, queue.namespace, "train")
    wait_for("the job to run", lambda: run.runs(5))
    words = []
    for workers in (1, 6):
        before = {pod["metadata"]["uid"] for pod in run.pods("worker")}
        run.scale(workers)
        done = seen(lambda workers=workers: run.runs(workers))  # type: ignore[misc]
        kept = len(before & {pod["metadata"]["uid"] for pod in run.pods("worker")})
        counts = [one["count"] for one in run.workload.get("spec", {}).get("podSets", ()) if one["name"] == "worker"]
        words.append(f"{workers}: {after(done)}, {kept} of {len(before)} workers kept, Workload of {counts}")
    return "; ".join(words)


def kills(side: Side) -> str:
    """40 jobs, each fifth urgent, room for 4, while operator and Kueue are killed at random moments."""
    choose = random.Random(1)
    queue = new_queue(side, *[2] * 4)
    with recorded_violations(side.api, queue.namespace) as violations:
        begin = time.monotonic()
        for number in range(40):
            side.submit(queue, f"job-{number}", ends=True, priority="urgent" if number % 5 == 4 else "")
        for _ in range(KILLS):
            # Longer than the lease of mpi-operator, which a new process has to wait for.
            time.sleep(choose.uniform(0.1, 20))
            if choose.random() < 0.5:
                side.kill()
                side.start()
            else:
                side.kueue.kill()
                side.kueue.start(**side.kueue.settings)
        seen(lambda: side.phases(queue.namespace)["Succeeded"] == 40, 300)
        wait_for("the quota to be given back", lambda: used(queue) == 0, 60)
        phases = dict(side.phases(queue.namespace))
        seconds = time.monotonic() - begin
    return f"{phases} in {seconds:.0f} s with {KILLS} kills; {len(violations)} times pods without quota"


def many(side: Side) -> str:
    """200 jobs of two workers, room for 20: seconds, and calls of the operator for each job."""
    queue = new_queue(side, *[2] * 20)
    with recorded_violations(side.api, queue.namespace) as violations:
        since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        begin = time.monotonic()
        for number in range(200):
            side.submit(queue, f"job-{number}", ends=True)
        done = seen(lambda: side.phases(queue.namespace)["Succeeded"] == 200, 600)
        wait_for("the quota to be given back", lambda: used(queue) == 0, 60)
        seconds = time.monotonic() - begin
    counted = {
        agent: sum(calls(side.cluster.settings.audit_log, agent, since).values()) / 200
        for agent in (side.system.agent, "kueue")
    }
    words = ", ".join(f"{count:.1f} calls a job of {agent}" for agent, count in counted.items())
    ended = "" if done is not None else f" NOT ALL: {dict(side.phases(queue.namespace))};"
    return f"{ended} {seconds:.0f} s; {words}; {len(violations)} times pods without quota".strip()


def used(queue: Queue) -> int:
    """Jobs that reserve quota."""
    return int(queue.api.get(f"{API}/clusterqueues/{queue.cluster_queue}")["status"].get("reservingWorkloads", 0))


SCENARIOS: tuple[Callable[[Side], str], ...] = (
    late_restart,
    default_queue,
    end_without_kueue,
    hold,
    resize,
    kills,
    many,
)


def main() -> None:
    """Runs the scenarios, or those that the arguments name, for each kind of job, or for the kind that they name."""
    if "MPI_OPERATOR" not in os.environ:
        sys.exit("queue_scenarios.py: MPI_OPERATOR is not set: name the program mpi-operator, built from its module")
    names = sys.argv[1:]
    chosen = [scenario for scenario in SCENARIOS if scenario.__name__ in names] or SCENARIOS
    sides = ((HorovodJobs, OperatorSystem), (MpiJobs, MpiOperatorSystem))
    for side_class, system_class in [side for side in sides if side[0].kind in names] or sides:
        with FakeCluster() as cluster:
            system = system_class(cluster)
            asyncio.run(system.prepare())
            kueue = Kueue(system.api, cluster.settings.pki, cluster.directory / "kueue")
            kueue.install()
            kueue.start(**kueue.with_framework())
            create_priority_classes(system.api)
            side = side_class(cluster, kueue, system)
            for scenario in chosen:
                print(f"{side.kind:10} {scenario.__name__:18} {scenario(side)}", flush=True)
            system.stop()
            kueue.kill()


if __name__ == "__main__":
    main()
