"""Watch threads: one acts as a kubelet, two record jobs and events."""

import http.client
import threading
from abc import ABC, abstractmethod

from support.api_client import Api, ApiError, Object, wait_for

# Final errors: the object is deleted, or has changed, which causes another event.
FINAL = (404, 409, 422)


class Watch(threading.Thread, ABC):
    """Calls `handle_event` for each event of a resource; `gaps` describes events that it may have missed."""

    path: str

    def __init__(self, api: Api) -> None:
        super().__init__(daemon=True)
        self._api, self._ended = api, threading.Event()
        self.gaps: list[str] = []
        self.uids: set[str] = set()

    @abstractmethod
    def handle_event(self, event: Object) -> None:
        """Handles one event."""

    def run(self) -> None:
        """Watches until `end`."""
        try:
            for event in self._api.watch(self.path, self._ended, self.gaps.append):
                self.handle_event(event)
                self.uids.add(event["object"]["metadata"]["uid"])
        except Exception as error:
            self.gaps.append(f"the thread ended: {error!r}")

    def end(self) -> None:
        """Stops watching."""
        self._ended.set()

    def errors(self) -> list[str]:
        """Why the records of this thread since the last call may be incomplete."""
        gaps, self.gaps[:] = list(self.gaps), []
        dead = [] if self.is_alive() else ["the thread is not alive"]
        return [f"{type(self).__name__}: {sentence}" for sentence in (*gaps, *dead)]


class Kubelet(Watch):
    """Acts as a kubelet without delay: ends and removes terminating pods, and ends pods at their active deadline."""

    path = "/api/v1/pods"

    def handle_event(self, event: Object) -> None:
        """Handles a pod until the API server accepts the update or rejects it finally."""
        while event["type"] != "DELETED" and not self._ended.is_set():
            try:
                self._act(event["object"])
                return
            except ApiError as error:
                if error.status in FINAL:
                    return
            except (OSError, http.client.HTTPException):
                pass
            self._ended.wait(0.1)

    def _act(self, pod: Object) -> None:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        if metadata.get("deletionTimestamp"):
            if metadata.get("deletionGracePeriodSeconds"):
                self._end_container(path, pod)
                self._api.delete(path, {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}})
        elif pod["spec"].get("activeDeadlineSeconds") == 1 and pod["status"]["phase"] in ("Pending", "Running"):
            self._api.patch(f"{path}/status", {"status": {"phase": "Failed", "reason": "DeadlineExceeded"}})

    def _end_container(self, path: str, pod: Object) -> None:
        """Reports that the container of a pod that runs was ended by a signal, before the pod is gone.

        A test sets a finalizer to hold a pod as one on a dead node, of which nothing is reported.
        """
        if pod["metadata"].get("finalizers"):
            return
        containers = pod["status"].get("containerStatuses", [])
        if any("running" in container.get("state", {}) for container in containers):
            ended = {"terminated": {"exitCode": 143, "reason": "Error"}}
            statuses = [container | {"ready": False, "state": ended} for container in containers]
            self._api.patch(f"{path}/status", {"status": {"phase": "Failed", "containerStatuses": statuses}})


class Recorder(Watch):
    """Records every stored version of every HorovodJob, by UID."""

    path = "/apis/horovodjob.dev/v1beta1/horovodjobs"

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.versions: dict[str, list[Object]] = {}

    def handle_event(self, event: Object) -> None:
        """Records a version."""
        known = self.versions.setdefault(event["object"]["metadata"]["uid"], [])
        version = event["object"]["metadata"]["resourceVersion"]
        if event["type"] != "DELETED" and all(one["metadata"]["resourceVersion"] != version for one in known):
            known.append(event["object"])

    def catch_up(self, namespace: str) -> None:
        """Waits until the jobs of a namespace are recorded as they are now."""

        def behind() -> list[str]:
            jobs = self._api.get(f"/apis/horovodjob.dev/v1beta1/namespaces/{namespace}/horovodjobs")["items"]
            return [job["metadata"]["name"] for job in jobs if not self._has(job["metadata"])]

        wait_for(f"the recorder in {namespace}", lambda: not behind() or self.gaps or not self.is_alive())

    def _has(self, metadata: Object) -> bool:
        versions = tuple(self.versions.get(metadata["uid"], ()))
        return any(one["metadata"]["resourceVersion"] == metadata["resourceVersion"] for one in versions)

    def reasons(self) -> set[str]:
        """Every reason of a recorded condition or error."""
        statuses = [version["status"] for versions in tuple(self.versions.values()) for version in tuple(versions)]
        lists = (status.get(key, ()) for status in statuses for key in ("conditions", "errors"))
        return {entry["reason"] for entries in lists for entry in entries}


class EventRecorder(Watch):
    """Records the reason of every event about a HorovodJob."""

    path = "/apis/events.k8s.io/v1/events"

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.reasons: set[str] = set()

    def handle_event(self, event: Object) -> None:
        """Records the reason of an event."""
        if event["object"]["regarding"].get("kind") == "HorovodJob":
            self.reasons.add(event["object"]["reason"])
