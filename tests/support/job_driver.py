"""A HorovodJob and its pods; the test acts as scheduler and kubelet."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Self

from support.api_client import JOBS, Api, ApiError, Object, job, wait_for

NODE = "node-1"
SAFE = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
# Threads share it, and a generator cannot run in two threads at once.
ADDRESS_NUMBERS = itertools.count()


def timestamp() -> str:
    """The current time in the format of Kubernetes."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def restricted_pod(name: str) -> Object:
    """A pod without an owner that Pod Security `restricted` admits."""
    container = {"name": "mine", "image": "mine:1", "securityContext": SAFE}
    spec = {"containers": [container], "automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def has_ended(pod: Object) -> bool:
    """Whether a pod is terminating or finished."""
    return "deletionTimestamp" in pod["metadata"] or pod["status"].get("phase") in ("Succeeded", "Failed")


class Job:
    """One job in one namespace."""

    def __init__(self, api: Api, namespace: str, name: str, uid: str) -> None:
        self.api, self.namespace, self.name, self.uid = api, namespace, name, uid
        self.path = f"{JOBS.format(namespace)}/{name}"
        self.pods_path = f"/api/v1/namespaces/{namespace}/pods"
        self.secret_path = f"/api/v1/namespaces/{namespace}/secrets/horovodjob-keys-{uid}"

    # ---- observed state -----------------------------------------------------------------------------------

    def get(self) -> Object:
        return self.api.get(self.path)

    @property
    def owner_reference(self) -> Object:
        """The reference to this job as the controller of an object."""
        owner = {"apiVersion": "horovodjob.dev/v1beta1", "kind": "HorovodJob", "name": self.name, "uid": self.uid}
        return {**owner, "controller": True}

    @property
    def status(self) -> Object:
        status: Object = self.get()["status"]
        return status

    @property
    def phase(self) -> str:
        return str(self.status.get("phase", ""))

    def condition(self, kind: str) -> Object:
        """The condition of this type, or an empty object."""
        return next((c for c in self.status.get("conditions", ()) if c["type"] == kind), {})

    def pods(self) -> dict[str, Object]:
        """The pods by the suffix of their names: `launcher`, `worker-0`."""
        query = f"labelSelector=horovodjob.dev/job-uid={self.uid}"
        items = self.api.get(f"{self.pods_path}?{query}")["items"]
        return {pod["metadata"]["name"].removeprefix(f"{self.name}-"): pod for pod in items}

    def uids(self) -> dict[str, str]:
        return {role: pod["metadata"]["uid"] for role, pod in self.pods().items()}

    def events(self) -> Counter[str]:
        """The number of events by reason, of this UID only."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"
        items = self.api.get(path)["items"]
        return Counter(item["reason"] for item in items if item["regarding"].get("uid") == self.uid)

    # ---- waiting ------------------------------------------------------------------------------------------

    def wait(self, phase: str) -> Object:
        """Waits for this phase and returns the status."""
        try:
            wait_for(f"phase {phase} of {self.name}", lambda: self.phase == phase)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {self.status}") from error
        return self.status

    def wait_for_condition(self, kind: str, *, status: str = "True", reason: str = "") -> str:
        """Waits for this condition and returns its message."""

        def poll() -> bool:
            found = self.condition(kind)
            return found.get("status") == status and reason in (found.get("reason"), "")

        wait_for(f"{kind}={status} {reason} of {self.name}", poll)
        return str(self.condition(kind)["message"])

    def wait_for_pods(self, roles: Iterable[str] | None = None) -> dict[str, Object]:
        """Waits until the pods of these roles, by default all, exist and have not ended, and returns all pods."""
        spec = self.get()["spec"]
        wanted = set(roles or ("launcher", *(f"worker-{index}" for index in range(spec["worker"]["replicas"]))))

        def poll() -> bool:
            return wanted <= {role for role, pod in self.pods().items() if not has_ended(pod)}

        wait_for(f"pods {sorted(wanted)} of {self.name}", poll)
        return self.pods()

    # ---- the user -----------------------------------------------------------------------------------------

    def suspend(self, suspended: bool = True, **spec: Any) -> None:
        self.api.patch(self.path, {"spec": {"runPolicy": {"suspend": suspended}, **spec}})

    def edit_policy(self, **policy: Any) -> None:
        """Changes the run policy."""
        self.api.patch(self.path, {"spec": {"runPolicy": policy}})

    def delete(self) -> None:
        self.api.delete(self.path)

    # ---- scheduler and kubelet ----------------------------------------------------------------------------

    def schedule(self, roles: Iterable[str] | None = None) -> None:
        """Binds pods to the node."""
        for role, pod in self.wait_for_pods(roles).items():
            if not pod["spec"].get("nodeName") and (roles is None or role in set(roles)):
                target = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod["metadata"]["name"]}}
                target["target"] = {"kind": "Node", "name": NODE}
                self.api.create(f"{self.pods_path}/{pod['metadata']['name']}/binding", target)

    def report(self, role: str, **status: Any) -> None:
        """Writes the status of a pod, as a kubelet does."""
        self.api.patch(f"{self.pods_path}/{self.name}-{role}/status", {"status": status})

    def start(self, role: str, *, ready: bool = True) -> None:
        """Reports that the container of a pod runs."""
        old = self.api.get(f"{self.pods_path}/{self.name}-{role}")["status"].get("podIP")
        number = next(ADDRESS_NUMBERS)
        address = old or f"10.88.{number // 250}.{number % 250 + 1}"
        conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": str(ready)}]
        running = {"running": {"startedAt": timestamp()}}
        container = self._container(role) | {"ready": ready, "started": ready, "state": running}
        addresses = {"podIP": address, "podIPs": [{"ip": address}]}
        self.report(role, phase="Running", conditions=conditions, containerStatuses=[container], **addresses)

    def end(
        self, role: str, code: int, *, message: str = "", reason: str = "", evicted: str = "", **status: Any
    ) -> None:
        """Reports the exit code of a container; `evicted` is the message of an eviction by the kubelet."""
        if evicted:
            status |= {"reason": "Evicted", "message": evicted}
        ended = {"exitCode": code, "reason": reason or ("Error" if code else "Completed"), "message": message}
        ended |= dict.fromkeys(("startedAt", "finishedAt"), timestamp())
        container = self._container(role) | {"state": {"terminated": ended}}
        phase = "Failed" if code else "Succeeded"
        self.report(role, phase=phase, containerStatuses=[container], **status)

    def report_waiting(self, role: str, reason: str, message: str) -> None:
        """Reports that the container of a pod waits, with this reason."""
        waiting = {"waiting": {"reason": reason, "message": message}}
        self.report(role, phase="Pending", containerStatuses=[self._container(role) | {"state": waiting}])

    def _container(self, role: str) -> Object:
        """The status of the main container of a pod, without its state."""
        name = role.partition("-")[0]
        return {"name": name, "image": "trainer:1", "imageID": "", "ready": False, "restartCount": 0}

    def delete_pod(self, role: str) -> None:
        """Deletes a pod, as a user does."""
        self.api.delete(f"{self.pods_path}/{self.name}-{role}")

    def evict(self, role: str) -> None:
        """Evicts a pod through the eviction API, as a drain does."""
        name = f"{self.name}-{role}"
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": self.namespace}}
        self.api.create(f"{self.pods_path}/{name}/eviction", body)

    def skip_backoff(self) -> None:
        """Backdates the last error, so that the next attempt starts at once."""
        errors = self.wait("Restarting")["errors"]
        errors[-1]["time"] = "2020-01-01T00:00:00Z"
        self.api.patch(f"{self.path}/status", {"status": {"errors": errors}})

    # ---- phases -------------------------------------------------------------------------------------------

    def advance_to(self, phase: str, *, since: str = "") -> Self:
        """Acts as scheduler and kubelet until the job is in this phase; begins at phase `since`.

        The operator writes Queued and Starting only if they last, so these are waited for at the end alone.
        """
        steps: dict[str, Callable[[], None]] = {
            "Queued": lambda: None,
            "Starting": self.schedule,
            "Running": self.run,
            "Succeeded": lambda: self.end("launcher", 0),
            "Restarting": lambda: self.end("launcher", 1, message="boom"),
        }
        way = ["Queued", "Starting", "Running"]
        way = way[: way.index(phase) + 1] if phase in way else [*way, phase]
        for step in way[way.index(since) + 1 if since else 0 :]:
            steps[step]()
            if step == way[-1] or step not in ("Queued", "Starting"):
                self.wait(step)
        return self

    def run(self) -> None:
        """Workers are ready, the launcher gets its hosts and runs mpirun."""
        self.run_workers()
        wait_for("the hosts of the launcher", lambda: self.hosts)
        self.start("launcher")

    def run_workers(self) -> None:
        """Reports that the workers run."""
        for role in self.wait_for_pods():
            if role != "launcher":
                self.start(role)

    @property
    def hosts(self) -> str:
        """The launcher's hostfile; empty without a launcher."""
        launcher = self.pods().get("launcher", {"metadata": {"annotations": {}}})
        return str(launcher["metadata"]["annotations"].get("horovodjob.dev/hosts", ""))


def submit(api: Api, namespace: str, name: str = "train", **spec: Any) -> Job:
    """Creates a job, by default with two workers."""
    path = JOBS.format(namespace)
    made = wait_for("the job to be created", lambda: _created(api, path, job(name, **spec)))
    return Job(api, namespace, name, made["metadata"]["uid"])


def _created(api: Api, path: str, body: Object) -> Object | None:
    try:
        return api.create(path, body)
    except ApiError as error:
        if error.status in (409, 429):  # a job of that name is still being deleted; the CRD was just changed
            return None
        raise
