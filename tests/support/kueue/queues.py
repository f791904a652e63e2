"""A queue of Kueue for one namespace, the jobs in it, and the rule that pods and quota belong together."""

import contextlib
from collections.abc import Iterator
from typing import Any

from support.api_client import JOBS, Api, ApiError, Object, job, wait_for
from support.control_plane.watch_threads import Watch
from support.job_driver import Job, timestamp

GROUP = "kueue.x-k8s.io"
API = f"/apis/{GROUP}/v1beta2"
LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
LAUNCHER_CPU, WORKER_CPU = 100, 200
"""In thousandths of a CPU."""
REQUESTS: dict[str, Object] = {
    role: {"resources": {"requests": {"cpu": f"{cpu}m"}}}
    for role, cpu in (("launcher", LAUNCHER_CPU), ("worker", WORKER_CPU))
}


class Queue:
    """A LocalQueue with a ClusterQueue and flavors of its own, and room for jobs of so many workers."""

    def __init__(
        self, api: Api, namespace: str, *workers: int, flavors: tuple[str, ...] = ("spot",), name: str = "gpus"
    ) -> None:
        self.api, self.namespace, self.name = api, namespace, name
        self.cluster_queue = namespace if name == "gpus" else f"{namespace}-{name}"
        for flavor in flavors:
            spec = {"nodeLabels": {"flavor": flavor}, "tolerations": [{"key": flavor, "operator": "Exists"}]}
            self.put("resourceflavors", "ResourceFlavor", f"{namespace}-{flavor}", spec)
        self._flavors = [f"{namespace}-{flavor}" for flavor in flavors]
        self._spec: Object = {"namespaceSelector": {}, "preemption": {"withinClusterQueue": "LowerPriority"}}
        self.resize(*workers)
        self.add(name)

    def resize(self, *workers: int) -> None:
        """Gives each flavor room for jobs of these sizes."""
        cpu = sum(LAUNCHER_CPU + WORKER_CPU * each for each in workers)
        resources = [{"name": "cpu", "nominalQuota": f"{cpu}m"}]
        flavors = [{"name": flavor, "resources": resources} for flavor in self._flavors]
        groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
        self.change(resourceGroups=groups)

    def change(self, **spec: Any) -> None:
        """Changes the ClusterQueue; None removes a field."""
        self._spec = {key: value for key, value in (self._spec | spec).items() if value is not None}
        self.put("clusterqueues", "ClusterQueue", self.cluster_queue, self._spec)

    def add(self, name: str, **spec: Any) -> None:
        """Creates or changes a LocalQueue of the ClusterQueue."""
        where = f"namespaces/{self.namespace}/localqueues"
        self.put(where, "LocalQueue", name, {"clusterQueue": self.cluster_queue} | spec)

    def use_topology(self) -> None:
        """Kueue chooses the nodes; there is one with room for the job."""
        levels = {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}
        self.put("topologies", "Topology", self.namespace, levels)
        flavor, labels = f"{self.namespace}-tas", {"flavor": self.namespace}
        self.put("resourceflavors", "ResourceFlavor", flavor, {"nodeLabels": labels, "topologyName": self.namespace})
        room = {"cpu": "8", "memory": "8Gi", "pods": "100"}
        ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
        metadata = {"name": self._node, "labels": labels | {"kubernetes.io/hostname": self._node}}
        self.api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        self.api.patch(f"/api/v1/nodes/{self._node}", {"spec": {"taints": None}})
        status = {"allocatable": room, "capacity": room, "conditions": [ready]}
        self.api.patch(f"/api/v1/nodes/{self._node}/status", {"status": status})
        self._flavors = [flavor]
        self.resize(2)

    def remove_node(self) -> None:
        """Deletes the node of a topology."""
        if self.api.find(f"/api/v1/nodes/{self._node}"):
            self.api.delete(f"/api/v1/nodes/{self._node}")

    @property
    def _node(self) -> str:
        return f"node-of-{self.namespace}"

    def put(self, path: str, kind: str, name: str, spec: Object) -> None:
        """Creates or replaces an object of Kueue."""
        body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}
        create_or_replace(self.api, f"{API}/{path}", body)

    def request(self, body: Object) -> Object:
        """A job in this queue, with the requests for which it has room."""
        for role, fields in REQUESTS.items():
            body["spec"][role] = fields | body["spec"].get(role, {})
        body["metadata"]["labels"] = {LABEL: self.name}
        return body

    def submit(
        self, name: str = "train", workers: int = 2, *, labels: Object | None = None, **spec: Any
    ) -> "QueuedJob":
        """Creates a job of the queue."""
        worker = {"replicas": workers, "gpus": 0} | spec.pop("worker", {})
        body = self.request(job(name, worker=worker, **spec))
        body["metadata"]["labels"] |= labels or {}
        return self.create(body)

    def create(self, body: Object) -> "QueuedJob":
        """Creates a job as it is given."""
        made = wait_for("the job to be created", lambda: _created(self.api, JOBS.format(self.namespace), body))
        return QueuedJob(self.api, self.namespace, made["metadata"]["name"], made["metadata"]["uid"])


def _created(api: Api, path: str, body: Object) -> Object | None:
    try:
        return api.create(path, body)
    except ApiError as error:
        if error.status == 409:
            return None
        raise


class QueuedJob(Job):
    """A job with a Workload."""

    @property
    def workload(self) -> Object:
        """The Workload that waits for the job, or holds its quota; an empty object without one."""
        return workload_of(self.api, self.namespace, self.uid)

    def workload_path(self) -> str:
        """Path of the Workload."""
        return f"{API}/namespaces/{self.namespace}/workloads/{self.workload['metadata']['name']}"

    def workload_condition(self, kind: str) -> Object:
        """The condition of this type of the Workload, or an empty object."""
        return condition_of(self.workload, kind)

    def wait_for_workload(self, kind: str, *, status: str = "True", reason: str = "") -> Object:
        """Waits for a condition of the Workload."""

        def poll() -> bool:
            found = self.workload_condition(kind)
            return found.get("status") == status and reason in (found.get("reason"), "")

        try:
            wait_for(f"{kind}={status} {reason} of the Workload of {self.name}", poll)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {self.workload}, and the job {self.status}") from error
        return self.workload_condition(kind)

    def wait_queued(self, reason: str) -> str:
        """Waits until the job says that it waits in its queue for this reason, without pods; returns the message."""
        message = self.wait_for_condition("Queued", reason=reason)
        wait_for(f"the pods of {self.name} to be gone", lambda: self.pods() == {})
        assert self.phase == "Queued"
        return message

    def relabel(self, **labels: str | None) -> None:
        """Changes labels of the job; `queue` and `priority` stand for those of Kueue."""
        names = {"queue": LABEL, "priority": PRIORITY_LABEL}
        self.api.patch(self.path, {"metadata": {"labels": {names[key]: value for key, value in labels.items()}}})

    def set_check(self, name: str, state: str, message: str = "", **updates: Any) -> None:
        """Acts as the controller of an admission check; `updates` are those of the pods by pod set."""
        self.wait_for_workload("QuotaReserved")
        changes = [{"name": pod_set, **update} for pod_set, update in updates.items()]
        check = {"name": name, "state": state, "message": message, "lastTransitionTime": timestamp()}
        wait_for("the check", lambda: self.workload["status"].get("admissionChecks"))
        self.api.patch(
            f"{self.workload_path()}/status", {"status": {"admissionChecks": [check | {"podSetUpdates": changes}]}}
        )


class QuotaRecorder(Watch):
    """Records every version of every Workload, or of every pod of a job."""

    def __init__(self, api: Api, path: str) -> None:
        super().__init__(api)
        self.path = path
        self.versions: list[tuple[int, str, Object]] = []

    def handle_event(self, event: Object) -> None:
        """Records a version."""
        self.versions.append((int(event["object"]["metadata"]["resourceVersion"]), event["type"], event["object"]))


@contextlib.contextmanager
def recorded_violations(api: Api, namespace: str = "") -> Iterator[list[str]]:
    """The quota violations of a namespace, or of all, within this context, which are in the list at its end."""
    place = f"/namespaces/{namespace}" if namespace else ""
    recorders = QuotaRecorder(api, f"{API}{place}/workloads"), QuotaRecorder(api, f"/api/v1{place}/pods")
    for recorder in recorders:
        recorder.start()
    violations: list[str] = []
    yield violations
    for recorder in recorders:
        recorder.end()
    violations += quota_violations(*recorders)


def quota_violations(workloads: QuotaRecorder, pods: QuotaRecorder) -> Iterator[str]:
    """Pods that were created without quota, and quota that was given back while pods held it, as sentences.

    The versions of one API server have one order. A Workload that is deleted takes its quota with it, so its pods are
    only looked at until then.
    """
    held: dict[str, tuple[str, bool]] = {}
    """By UID of the job: name of the Workload and whether it has a reservation."""
    running: dict[str, dict[str, str]] = {}
    """By UID of the job: pods, by UID, with their names."""
    for _, event, found in sorted([*workloads.versions, *pods.versions], key=lambda version: version[0]):
        metadata = found["metadata"]
        owner = next((one["uid"] for one in metadata.get("ownerReferences", ()) if one.get("controller")), "")
        if found["kind"] == "Workload":
            before = held.get(owner, ("", False))
            if event == "DELETED" or "deletionTimestamp" in metadata:
                if before[0] == metadata["name"]:
                    held.pop(owner, None)
                continue
            if before[1] and not has_reservation(found) and not is_finished(found) and running.get(owner):
                yield f"{metadata['name']} lost its reservation while {sorted(running[owner].values())} existed"
            held[owner] = (metadata["name"], has_reservation(found))
        elif event == "DELETED":
            running.get(owner, {}).pop(metadata["uid"], None)
        elif owner in held and metadata["uid"] not in running.setdefault(owner, {}):
            running[owner][metadata["uid"]] = metadata["name"]
            if not held[owner][1] and "deletionTimestamp" not in metadata:
                yield f"pod {metadata['name']} was created without quota of {held[owner][0]}"


def workload_of(api: Api, namespace: str, uid: str) -> Object:
    """The Workload that was written last of those of a job; an empty object without one."""
    items = api.get(f"{API}/namespaces/{namespace}/workloads")["items"]
    mine = [item for item in items if any(owner["uid"] == uid for owner in item["metadata"].get("ownerReferences", ()))]
    return max(mine, key=lambda item: int(item["metadata"]["resourceVersion"]), default={})


def condition_of(workload: Object, kind: str) -> Object:
    """A condition of a Workload, or an empty object."""
    conditions = workload.get("status", {}).get("conditions", ())
    return next((one for one in conditions if one["type"] == kind), {})


def has_reservation(workload: Object) -> bool:
    """Whether quota is reserved for a Workload."""
    return bool(condition_of(workload, "QuotaReserved").get("status") == "True")


def is_finished(workload: Object) -> bool:
    """Whether a Workload has given its quota back without end."""
    return bool(condition_of(workload, "Finished").get("status") == "True")


def create_or_replace(api: Api, path: str, body: Object) -> Object:
    """The object, as it is after this, whatever Kueue writes at the same time."""
    found = f"{path}/{body['metadata']['name']}"
    while True:
        try:
            if (current := api.find(found)) is None:
                return api.create(path, body)
            version = {"resourceVersion": current["metadata"]["resourceVersion"]}
            return api.replace(found, body | {"metadata": current["metadata"] | body["metadata"] | version})
        except ApiError as error:
            if error.status != 409:
                raise


def create_admission_check(api: Api, name: str) -> None:
    """An admission check of a controller that the test acts as."""
    spec = {"controllerName": "example.com/check"}
    body = {"apiVersion": f"{GROUP}/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": name}, "spec": spec}
    create_or_replace(api, f"{API}/admissionchecks", body)
    active = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": timestamp()}
    api.patch(f"{API}/admissionchecks/{name}/status", {"status": {"conditions": [active]}})


def create_priority_classes(api: Api) -> None:
    """The priority classes `urgent` and `relaxed` of Kueue."""
    for name, value in (("urgent", 1000), ("relaxed", -10)):
        body = {"apiVersion": f"{GROUP}/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}}
        api.create(f"{API}/workloadpriorityclasses", body | {"value": value})


def used_cpu(api: Api, cluster_queue: str) -> int:
    """What a ClusterQueue counts as used, in thousandths of a CPU."""
    status = api.get(f"{API}/clusterqueues/{cluster_queue}")["status"]
    totals = (one["total"] for flavor in status["flavorsUsage"] for one in flavor["resources"] if one["name"] == "cpu")
    return sum(_thousandths(total) for total in totals)


def requested_cpu(api: Api, namespace: str) -> int:
    """What the pods of a namespace request that have not ended, in thousandths of a CPU."""
    pods: list[Object] = api.items(f"/api/v1/namespaces/{namespace}/pods")
    active = (pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed"))
    requests = (pod["spec"]["containers"][0]["resources"].get("requests", {}) for pod in active)
    return sum(_thousandths(each.get("cpu", "0")) for each in requests)


def _thousandths(quantity: str) -> int:
    return int(quantity[:-1]) if quantity.endswith("m") else int(quantity) * 1000


def wait_for_balance(*queues: Queue) -> None:
    """Waits until the quota in use of the queues of a namespace is what its pods request."""
    api, namespace = queues[0].api, queues[0].namespace

    def is_balanced() -> bool:
        return sum(used_cpu(api, queue.cluster_queue) for queue in queues) == requested_cpu(api, namespace)

    wait_for("quota and pods to be equal", is_balanced)
