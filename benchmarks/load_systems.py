"""The systems that benchmarks/load.py measures: the floor, the operator, and mpi-operator where there is one."""

import asyncio
import copy
import json
import os
import ssl
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import yaml
from fake_cluster import FakeCluster
from observer import ENDS, JOB, ROLE, Client, Milestone, Object, ObservedJob, Observer

from horovodjob.api.constants import ANNOTATION_HOSTS, LABEL_REPLICA_INDEX
from support.api_client import JOBS, Api, is_served, wait_for
from support.control_plane.operator_control_plane import OPERATOR_NAMESPACE, operator_kubeconfig
from support.kueue.queues import Queue
from support.operator_process import Operator

NAMESPACE = "load"
USER_CONNECTIONS = 32
BIG_WORKERS = 100
SERVER_FIELDS = ("creationTimestamp", "generation", "managedFields", "ownerReferences", "resourceVersion", "uid")
COLLECTIONS = {
    "pods": f"/api/v1/namespaces/{NAMESPACE}/pods",
    "secrets": f"/api/v1/namespaces/{NAMESPACE}/secrets",
    "configmaps": f"/api/v1/namespaces/{NAMESPACE}/configmaps",
    "services": f"/api/v1/namespaces/{NAMESPACE}/services",
    "networkpolicies": f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies",
}


POLICY_BINDING = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/horovodjob-operator"


class SystemEnded(Exception):
    """The process that runs the jobs has ended by itself."""


class System(ABC):
    """What runs the jobs, on a cluster of its own; they are submitted and observed in the same way for each system."""

    name: str
    agent: str
    """Beginning of the user agent that its requests have in the audit log."""
    jobs_path = JOBS.format(NAMESPACE)
    end: tuple[Milestone, ...] = (Milestone.SUCCEEDED, Milestone.WORKERS_GONE)
    pid: int | None = None
    """The process whose processor time and memory count."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster, self.api = cluster, Api(cluster.kubeconfig)
        self._stack = AsyncExitStack()
        self.user: Client
        self.observer: Observer

    async def __aenter__(self) -> Self:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        self.api.create("/api/v1/namespaces", body)
        account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
        wait_for("the namespace's service account", lambda: self.api.find(account))
        await self.prepare()
        self.user = await self._stack.enter_async_context(self.new_client("load-user", connections=USER_CONNECTIONS))
        self.observer = await self._stack.enter_async_context(Observer(self.user, NAMESPACE, self.jobs_path))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        await self._stack.aclose()

    @abstractmethod
    async def prepare(self) -> None:
        """Starts the process."""

    @abstractmethod
    def stop(self) -> None:
        """Ends the process."""

    @abstractmethod
    def check(self) -> None:
        """Raises SystemEnded where it has ended by itself."""

    @abstractmethod
    def job(self, name: str, workers: int, *, ends: bool) -> Object:
        """The object that a user creates."""

    async def submit(self, name: str, workers: int, *, ends: bool = True) -> ObservedJob:
        """Creates a job; its launcher ends after a second, or never."""
        observed = self.observer.add(name, workers)
        await self.user.request("POST", self.jobs_path, self.job(name, workers, ends=ends))
        return observed

    def new_client(self, agent: str, *, token: str = "", connections: int = 64) -> Client:
        """A client of the cluster: the administrator's, or that of a service account."""
        pki = self.cluster.directory / "pki"
        tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        if not token:
            tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        return Client(self.api.server, tls, agent, token=token, connections=connections)


def labels(name: str, role: str, *, ends: bool) -> dict[str, str]:
    """Labels of a pod template, for kwok and the observer."""
    return {JOB: name, ROLE: role, ENDS: "yes" if ends else "no"}


def horovodjob(name: str, workers: int, *, ends: bool) -> Object:
    """A HorovodJob of so many workers."""

    def template(role: str) -> Object:
        return {"template": {"metadata": {"labels": labels(name, role, ends=ends)}}}

    return {
        "apiVersion": "horovodjob.dev/v1beta1",
        "kind": "HorovodJob",
        "metadata": {"name": name},
        "spec": {
            "image": "trainer:1",
            "command": ["python3", "train.py"],
            "worker": {"replicas": workers, "gpus": 0} | template("worker"),
            "launcher": template("launcher"),
        },
    }


class OperatorSystem(System):
    """This tree's operator, as the Deployment in manifests/base sets it, outside a pod."""

    name = "operator"
    agent = "horovodjob-operator"
    operator: Operator

    async def prepare(self) -> None:
        access = operator_kubeconfig(self.api, self.cluster.directory / "operator.kubeconfig")
        self.operator = new_operator(self.cluster, access)
        self.start()

    def start(self) -> None:
        """Starts the process and waits until it is ready and leads."""
        self.operator.start()
        wait_for("the Lease", lambda: self.operator.is_leader)
        self.pid = self.operator.pid

    def stop(self) -> None:
        if self.operator.is_running:
            self.operator.stop()

    def check(self) -> None:
        if not self.operator.is_running:
            raise SystemEnded(f"the operator has ended: {'; '.join(self.operator.errors())}")

    def job(self, name: str, workers: int, *, ends: bool) -> Object:
        return horovodjob(name, workers, ends=ends)

    async def submit_to(self, queue: Queue, name: str, workers: int) -> ObservedJob:
        """Creates a job in a queue."""
        observed = self.observer.add(name, workers)
        await self.user.request("POST", self.jobs_path, queue.request(self.job(name, workers, ends=True)))
        return observed


def new_operator(cluster: FakeCluster, access: Path, **settings: str) -> Operator:
    """The operator with the packages of its image."""
    # Kopf imports the official client where it is installed. The image does not have it.
    image = cluster.directory / "image"
    image.mkdir(exist_ok=True)
    (image / "kubernetes.py").write_text("raise ImportError('not in the image of the operator')\n")
    log = cluster.directory / "log" / "operator.log"
    return Operator(access, log, image, lease_namespace=OPERATOR_NAMESPACE, identity="load", **settings)


class Floor(System):
    """The least that any operator does: the same objects, from a client that knows what comes next.

    It creates what the operator has created for a job, publishes the hosts, and deletes the workers when the launcher
    is done. There is no HorovodJob, no status and no event.
    """

    name = "floor"
    agent = "load-floor"
    end: tuple[Milestone, ...] = (Milestone.WORKERS_GONE,)
    _bodies: list[tuple[str, str]]
    """Collections, and objects as JSON, of the job `template-job`."""

    async def prepare(self) -> None:
        access = operator_kubeconfig(self.api, self.cluster.directory / "floor.kubeconfig")
        # Its objects belong to no HorovodJob, and the policy permits the account no others.
        self.api.delete(POLICY_BINDING)
        await self._copy_objects()
        # The operator's own account, for the API server exempts administrators from priority and fairness.
        token = yaml.safe_load(access.read_text())["users"][0]["user"]["token"]
        # Two pools of connections, so that small jobs do not wait for the pods of a big one.
        self._clients = [
            await self._stack.enter_async_context(self.new_client(self.agent, token=token)) for _ in range(2)
        ]
        self._tasks: set[asyncio.Task[None]] = set()

    async def _copy_objects(self) -> None:
        """Lets the operator run one job, and keeps what it has created."""
        operator = OperatorSystem(self.cluster)
        await operator.prepare()
        path = operator.jobs_path
        self.api.create(path, operator.job("template-job", 2, ends=False))
        wait_for("the template job", lambda: self._phase() == "Running")
        self.final = self.api.get(f"{path}/template-job")
        uid = self.final["metadata"]["uid"]
        self._bodies = [
            (collection, json.dumps(as_created(body)).replace(uid, "template-job"))
            for collection in COLLECTIONS.values()
            for body in self.api.get(collection)["items"]
            if any(owner["uid"] == uid for owner in body["metadata"].get("ownerReferences", ()))
        ]
        self.api.delete(f"{path}/template-job")
        wait_for("the pods to be gone", lambda: not self.api.get(COLLECTIONS["pods"])["items"])
        operator.stop()

    def _phase(self) -> str:
        return str(self.api.get(f"{self.jobs_path}/template-job").get("status", {}).get("phase"))

    def check(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def job(self, name: str, workers: int, *, ends: bool) -> Object:
        return horovodjob(name, workers, ends=ends)

    async def submit(self, name: str, workers: int, *, ends: bool = True) -> ObservedJob:
        observed = self.observer.add(name, workers)
        self._tasks.add(asyncio.create_task(self.run_job(observed, ends)))
        return observed

    async def run_job(self, job: ObservedJob, ends: bool) -> None:
        """What an operator does for one job."""
        client = self.client_of(job)
        objects = self.objects(job.name, job.workers, ends=ends)
        await asyncio.gather(*(client.request("POST", path, body) for path, body in objects))
        await job.reach(Milestone.WORKERS_RUN)
        hosts = "".join(f"{address} slots=1\n" for address in job.addresses.values())
        annotations = {"metadata": {"annotations": {ANNOTATION_HOSTS: hosts}}}
        await client.request("PATCH", f"{COLLECTIONS['pods']}/{job.name}-launcher", annotations)
        if ends:
            await job.reach(Milestone.LAUNCHER_DONE)
            await client.request("DELETE", f"{COLLECTIONS['pods']}?labelSelector={JOB}={job.name},{ROLE}=worker")

    def client_of(self, job: ObservedJob) -> Client:
        """The client for jobs of this size."""
        return self._clients[job.workers > BIG_WORKERS]

    def objects(self, name: str, workers: int, *, ends: bool) -> Iterable[tuple[str, Object]]:
        """Collections and objects of a job."""
        for path, text in self._bodies:
            body = json.loads(text.replace("template-job", name))
            given = body["metadata"].get("labels", {})
            if ROLE not in given:
                yield path, body
                continue
            given[ENDS] = "yes" if ends else "no"
            if given[ROLE] == "launcher" or given[LABEL_REPLICA_INDEX] == "0":
                yield path, body
            else:  # worker 1 stands for all but the first, which alone reports progress
                for index in range(1, workers):
                    worker = copy.deepcopy(body)
                    worker["metadata"]["name"] = f"{name}-worker-{index}"
                    worker["metadata"]["labels"][LABEL_REPLICA_INDEX] = str(index)
                    yield path, worker


def as_created(body: Object) -> Object:
    """An object without what the API server, the scheduler and kwok have added."""
    metadata = {key: value for key, value in body["metadata"].items() if key not in SERVER_FIELDS}
    spec = {"spec": {key: value for key, value in body["spec"].items() if key != "nodeName"}} if "spec" in body else {}
    if ANNOTATION_HOSTS in metadata.get("annotations", {}):
        metadata["annotations"][ANNOTATION_HOSTS] = ""
    return {key: value for key, value in body.items() if key != "status"} | {"metadata": metadata} | spec


class FloorWithStatus(Floor):
    """The floor with the HorovodJob, and the status writes and events of the budget: what the API server allows."""

    name = "floor+status"
    agent = "load-floor"
    end = (Milestone.SUCCEEDED, Milestone.WORKERS_GONE)

    async def submit(self, name: str, workers: int, *, ends: bool = True) -> ObservedJob:
        observed = self.observer.add(name, workers)
        await self.user.request("POST", self.jobs_path, self.job(name, workers, ends=ends))
        self._tasks.add(asyncio.create_task(self.run_job(observed, ends)))
        return observed

    async def run_job(self, job: ObservedJob, ends: bool) -> None:
        reports = asyncio.gather(
            self._report(job, "Running", Milestone.WORKERS_RUN),
            *([self._report(job, "Succeeded", Milestone.LAUNCHER_DONE)] if ends else []),
        )
        await super().run_job(job, ends)
        await reports

    async def _report(self, job: ObservedJob, phase: str, *after: Milestone) -> None:
        await job.reach(*after)
        status = self.final["status"] | {"phase": phase}
        await self.client_of(job).request("PATCH", f"{self.jobs_path}/{job.name}/status", {"status": status})
        await self._post(job, phase)

    async def _post(self, job: ObservedJob, reason: str) -> None:
        await self.client_of(job).request(
            "POST", f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events", event(job, reason)
        )


def event(job: ObservedJob, reason: str) -> Object:
    """An event about a job."""
    about = {"apiVersion": "horovodjob.dev/v1beta1", "kind": "HorovodJob", "name": job.name, "namespace": NAMESPACE}
    body: dict[str, Any] = {"metadata": {"name": f"{job.name}.{reason.lower()}"}, "regarding": about, "reason": reason}
    body |= {
        "action": reason,
        "type": "Normal",
        "note": f"The job is {reason}.",
        "eventTime": "2026-01-01T00:00:00.000000Z",
    }
    return body | {"reportingController": "horovodjob.dev/load", "reportingInstance": "load"}


class MpiOperatorSystem(System):
    """The binary that MPI_OPERATOR names, with limits raised far enough that they are not what is measured.

    Its launcher is a Job that starts at once, so kwok lets it succeed a second after it is placed.
    """

    name = "mpi-operator"
    agent = "mpi-operator"
    jobs_path = f"/apis/kubeflow.org/v2beta1/namespaces/{NAMESPACE}/mpijobs"
    _process: subprocess.Popen[bytes]

    async def prepare(self) -> None:
        self.api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", mpijob_definition())
        wait_for("MPIJobs to be served", lambda: is_served(self.api, self.jobs_path))
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": self.name}}
        self.api.create(f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/serviceaccounts", account)
        self.api.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", cluster_admin(self.name))
        self._access = operator_kubeconfig(self.api, self.cluster.directory / "mpi-operator.kubeconfig", self.name)
        self.start()

    def start(self) -> None:
        """Starts the process and waits until it leads."""
        with (self.cluster.directory / "log" / "mpi-operator.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", "--", *mpi_operator_command(self._access)], stdout=log, stderr=log
            )
        self.pid = self._process.pid
        election = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/leases/mpi-operator"
        wait_for("mpi-operator to lead", lambda: self._process.poll() is not None or self.api.find(election))
        self.check()

    def check(self) -> None:
        if self._process.poll() is not None:
            words = (self.cluster.directory / "log" / "mpi-operator.log").read_text(errors="replace")
            raise SystemEnded(f"mpi-operator has ended: {' | '.join(words.splitlines()[-3:])}")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def job(self, name: str, workers: int, *, ends: bool) -> Object:
        def replicas(role: str, count: int) -> Object:
            spec = {
                "containers": [{"name": "main", "image": "trainer:1", "command": ["mpirun", "python3", "train.py"]}]
            }
            return {
                "replicas": count,
                "template": {"metadata": {"labels": labels(name, role, ends=ends)}, "spec": spec},
            }

        specs = {"Launcher": replicas("mpi-launcher", 1), "Worker": replicas("worker", workers)}
        return {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "metadata": {"name": name},
            "spec": {"slotsPerWorker": 1, "runPolicy": {"cleanPodPolicy": "Running"}, "mpiReplicaSpecs": specs},
        }


def mpi_operator_command(access: Path) -> list[str]:
    """Its command line: eight workers, and the API server's own limits instead of the client's."""
    return [
        os.environ["MPI_OPERATOR"],
        f"--kubeConfig={access}",
        f"--lock-namespace={OPERATOR_NAMESPACE}",
        "--threadiness=8",
        "--kube-api-qps=2000",
        "--kube-api-burst=4000",
        "--controller-queue-rate-limit=2000",
        "--controller-queue-burst=4000",
    ]


def mpijob_definition() -> Object:
    """A CRD for MPIJobs that validates nothing, which only makes their writes cheaper."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v2beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "mpijobs", "singular": "mpijob", "kind": "MPIJob", "listKind": "MPIJobList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "mpijobs.kubeflow.org"},
        "spec": {
            "group": "kubeflow.org",
            "names": names,
            "scope": "Namespaced",
            "versions": [version | {"subresources": {"status": {}}}],
        },
    }


def cluster_admin(account: str) -> Object:
    """All rights for a service account of the operator's namespace."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": account},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": OPERATOR_NAMESPACE}],
    }


SYSTEMS: dict[str, type[System]] = {
    system.name: system for system in (Floor, FloorWithStatus, OperatorSystem, MpiOperatorSystem)
}
