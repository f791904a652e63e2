"""Statuses of jobs and pods, as operator and kubelet report them."""

from typing import Any

from support.api_client import JOBS, Api, Object, job, wait_for

TIME = "2026-11-22T12:00:00Z"
RUNNING = {"state": {"running": {"startedAt": TIME}}}


def condition(type_: str, reason: str, message: str) -> Object:
    """A condition with status True."""
    return {
        "type": type_,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": TIME,
        "observedGeneration": 1,
    }


class ClusterState:
    """Writes to the test's namespace as operator and kubelet do."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.jobs, self.pods = JOBS.format(namespace), f"/api/v1/namespaces/{namespace}/pods"

    def create(self, name: str = "train", labels: dict[str, str] | None = None, **spec: Any) -> Object:
        """A job as a user of kubectl creates it."""
        body = job(name, **spec)
        body["metadata"]["labels"] = labels or {}
        return self.api.create(self.jobs, body)

    def report(self, name: str = "train", **status: Any) -> Object:
        """The job's status, as the operator writes it."""
        return self.api.patch(f"{self.jobs}/{name}/status", {"status": {"observedGeneration": 1, **status}})

    def run(self, name: str = "train", **status: Any) -> Object:
        """The job's ranks run."""
        running = {"phase": "Running", "executionState": "running", "startTime": TIME, "workersReady": "2/2"}
        return self.report(name, attempt=1, **running, **status)

    def succeed(self, name: str = "train") -> Object:
        """The job ends with success."""
        words = {"phase": "Succeeded", "executionState": "succeeded", "startTime": TIME, "completionTime": TIME}
        return self.report(name, **words, exitCode=0)

    def fail(self, name: str = "train", exit_code: int | None = None, **status: Any) -> Object:
        """The job fails."""
        words = {"phase": "Failed", "executionState": "failed", "startTime": TIME, "completionTime": TIME}
        return self.report(name, **words, **({} if exit_code is None else {"exitCode": exit_code}), **status)

    def event(self, owner: Object, reason: str, message: str, *, minute: int = 0) -> Object:
        """An event of a job, as the operator creates it."""
        metadata = owner["metadata"]
        involved = {
            "kind": owner["kind"],
            "name": metadata["name"],
            "namespace": self.namespace,
            "uid": metadata["uid"],
        }
        time = f"2026-11-22T12:{minute:02}:00Z"
        body: Object = {
            "metadata": {"name": f"{metadata['name']}.{minute}"},
            "involvedObject": involved,
            "type": "Normal",
        }
        body |= {"reason": reason, "message": message, "firstTimestamp": time, "lastTimestamp": time, "count": 1}
        return self.api.create(f"/api/v1/namespaces/{self.namespace}/events", body)

    def pod(
        self, owner: Object, role: str, index: int = 0, *, node: str | None = None, attempt: int = 1, gpus: int = 0
    ) -> Object:
        """A running pod of a job."""
        metadata = owner["metadata"]
        name = f"{metadata['name']}-launcher" if role == "launcher" else f"{metadata['name']}-worker-{index}"
        labels = {
            "horovodjob.dev/job": metadata["name"],
            "horovodjob.dev/job-uid": metadata["uid"],
            "horovodjob.dev/role": role,
            "horovodjob.dev/replica-index": str(index),
            "horovodjob.dev/attempt": str(attempt),
        }
        spec: Object = {"containers": [{"name": role, "image": "trainer:1"}], "terminationGracePeriodSeconds": 0}
        if node:
            spec["nodeName"] = node
        if gpus:
            spec["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
        self.api.create(self.pods, {"metadata": {"name": name, "labels": labels}, "spec": spec})
        return self.set_container(name, role, RUNNING)

    def claim(self, name: str = "data", mode: str = "ReadWriteMany") -> Object:
        """A PersistentVolumeClaim with this access mode."""
        spec = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}
        path = f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims"
        return self.api.create(path, {"metadata": {"name": name}, "spec": spec})

    def set_container(self, name: str, role: str, state: Object) -> Object:
        """Writes the state of the pod's container, as the kubelet does."""
        container = {"name": role, "image": "trainer:1", "imageID": "", "ready": True, "restartCount": 0, **state}
        phase = "Running" if "running" in state["state"] else "Succeeded"
        status = {"phase": phase, "hostIP": "10.0.0.4", "containerStatuses": [container]}
        return self.api.patch(f"{self.pods}/{name}/status", {"status": status})

    def codes(self) -> list[Object]:
        """The ConfigMaps with the code of jobs."""
        found = self.api.items(f"/api/v1/namespaces/{self.namespace}/configmaps")
        return [each for each in found if "-code-" in each["metadata"]["name"]]

    def pods_of_hvj(self) -> list[Object]:
        """Pods that `hvj` has created to mount a volume."""
        selector = "labelSelector=app.kubernetes.io/managed-by%3Dhvj"
        found: list[Object] = self.api.get(f"{self.pods}?{selector}")["items"]
        return found

    def start_pod_of_hvj(self, node: str) -> Object:
        """Schedules and starts the pod that `hvj` creates."""
        (pod,) = wait_for("the pod", self.pods_of_hvj)
        name = pod["metadata"]["name"]
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        self.api.create(f"{self.pods}/{name}/binding", binding)
        self.set_container(name, "files", RUNNING)
        return pod

    def end(self, name: str, role: str) -> Object:
        """The pod's container has ended."""
        return self.set_container(name, role, {"state": {"terminated": {"exitCode": 0, "finishedAt": TIME}}})
