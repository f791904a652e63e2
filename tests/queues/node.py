"""A scheduler and a kubelet that bind and run all pods at once, in the place of nodes."""

import threading
from collections.abc import Callable

from support.api_client import Api, ApiError, Object
from support.control_plane.watch_threads import FINAL, Kubelet
from support.job_driver import ADDRESS_NUMBERS, NODE, timestamp

HOSTS = "horovodjob.dev/hosts"
ROLE = "horovodjob.dev/role"


class Node(Kubelet):
    """Binds pods without gates, runs them, and lets each launcher succeed after `seconds`; None: never."""

    def __init__(self, api: Api, seconds: float | None = 0.3) -> None:
        super().__init__(api)
        self.seconds = seconds
        self._timers: set[str] = set()

    def _act(self, pod: Object) -> None:
        super()._act(pod)
        metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
        if metadata.get("deletionTimestamp") or spec.get("schedulingGates") or ROLE not in metadata["labels"]:
            return
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        if not spec.get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": metadata["name"]}}
            self._api.create(f"{path}/binding", target | {"target": {"kind": "Node", "name": NODE}})
        elif status.get("phase") == "Pending" and self._has_hosts(pod):
            self._run(path, pod)
        elif status.get("phase") == "Running" and metadata["labels"][ROLE] == "launcher":
            self._end_later(path, pod)

    def _has_hosts(self, pod: Object) -> bool:
        """Whether a launcher knows its hosts; workers need none."""
        metadata = pod["metadata"]
        return metadata["labels"][ROLE] != "launcher" or bool(metadata.get("annotations", {}).get(HOSTS))

    def _run(self, path: str, pod: Object) -> None:
        number = next(ADDRESS_NUMBERS)
        address = f"10.{100 + number // 62500}.{number // 250 % 250}.{number % 250 + 1}"
        container = {"name": pod["spec"]["containers"][0]["name"], "image": "trainer:1", "imageID": ""}
        container |= {
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": timestamp()}},
        }
        conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": conditions}
        self._patch(f"{path}/status", pod, {"status": status | {"containerStatuses": [container]}})

    def _end_later(self, path: str, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if self.seconds is not None and uid not in self._timers:
            self._timers.add(uid)
            timer = threading.Timer(self.seconds, self._end, (path, pod))
            timer.daemon = True
            timer.start()

    def _end(self, path: str, pod: Object) -> None:
        ended = {"exitCode": 0, "reason": "Completed", "startedAt": timestamp(), "finishedAt": timestamp()}
        statuses = [
            one | {"ready": False, "state": {"terminated": ended}} for one in pod["status"]["containerStatuses"]
        ]
        body = {"status": {"phase": "Succeeded", "containerStatuses": statuses}}
        self._until_final(lambda: self._patch(f"{path}/status", pod, body))

    def _patch(self, path: str, pod: Object, body: Object) -> None:
        """Changes this pod, and not another one with its name."""
        self._api.patch(path, {"metadata": {"uid": pod["metadata"]["uid"]}, **body})

    def _until_final(self, write: Callable[[], None]) -> None:
        while not self._ended.wait(0.05):
            try:
                return write()
            except ApiError as error:
                if error.status in FINAL:
                    return None
            except OSError:
                pass
        return None
