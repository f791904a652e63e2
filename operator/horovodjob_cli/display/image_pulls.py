"""The pulls of images for a job's pods, as the kubelets report them in events: begin and end, but no bytes."""

import re
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import copy_context
from datetime import datetime
from typing import Any

from horovodjob.client.cluster import kube
from horovodjob.client.cluster.watch import SYNCED, changes

Object = dict[str, Any]
PULLING, PULLED = "Pulling", "Pulled"
ENDS = (PULLED, "Failed", "BackOff")
IMAGE = re.compile(r'image "([^"]+)"')
SIZE = re.compile(r"Image size: (\d+) bytes")


class ImagePulls:
    """The pulls so far. `note` gets a line when the pull of an image begins and when it has ended on all nodes."""

    def __init__(self, job: Object, note: Callable[[str], None]) -> None:
        self._job, self._note = job, note
        self._nodes: dict[str, str] = {}  # by the UIDs of pods
        self._begun: dict[tuple[str, str], Object] = {}  # events by node and image
        self._ended: dict[tuple[str, str], Object] = {}

    def follow(self) -> None:
        """Watch in the background, for a user who may read events."""
        threading.Thread(target=copy_context().run, args=(self._watch,), daemon=True).start()

    def text(self, *, now: float) -> str:
        """What is pulled now, such as `pulling image on 2 of 4 nodes, 35 s`; empty if nothing is."""
        active = {key: event for key, event in self._begun.copy().items() if key not in self._ended}
        if not active:
            return ""
        nodes = {node for node, _ in active}
        seconds = max(now - _moment(event) for event in active.values())
        return f"pulling image on {len(nodes)} of {len({*self._nodes.values()})} nodes, {max(seconds, 0):.0f} s"

    def _watch(self) -> None:
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        selection = {
            "namespace": self._job["metadata"]["namespace"],
            "field_selector": "involvedObject.kind=Pod,source=kubelet",
        }
        earlier: list[Object] | None = []
        with suppress(ApiException, HTTPError):
            for change, event in changes(kube.core().list_namespaced_event, selection):
                if change == SYNCED and earlier is not None:
                    self._observe_all(sorted(earlier, key=kube.event_time))
                    earlier = None
                elif change in ("ADDED", "MODIFIED"):
                    self._observe_all([event]) if earlier is None else earlier.append(event)

    def _observe_all(self, events: Iterable[Object]) -> None:
        for event in events:
            image = IMAGE.search(event.get("message") or "")
            if image and event.get("reason") in (PULLING, *ENDS) and (node := self._node(event)):
                self._observe((node, image[1]), event)

    def _observe(self, pull: tuple[str, str], event: Object) -> None:
        image = pull[1]
        if event["reason"] == PULLING:
            is_first = not any(other == image for _, other in self._begun)
            self._begun[pull] = event
            self._ended.pop(pull, None)
            if is_first:
                self._note(f"pulling image {image}")
            return
        if pull not in self._begun:  # the node had the image
            return
        self._ended[pull] = event
        begun = {each for each in self._begun if each[1] == image}
        if event["reason"] == PULLED and begun <= self._ended.keys():
            seconds = max(_moment(self._ended[each]) - _moment(self._begun[each]) for each in begun)
            size = SIZE.search(event["message"])
            mebibytes = f", {int(size[1]) / 2**20:.0f} MiB" if size else ""
            nodes = f"{len(begun)} node{'s' if len(begun) > 1 else ''}"
            self._note(f"pulled image {image} on {nodes} in {seconds:.0f} s{mebibytes}")

    def _node(self, event: Object) -> str:
        """The node of the pod that the event is about; empty if that is no pod of the job."""
        pod = event["involvedObject"]
        if pod.get("uid") not in self._nodes and pod["name"].startswith(f"{self._job['metadata']['name']}-"):
            pods = kube.pods(self._job)
            self._nodes = {each["metadata"]["uid"]: each["spec"].get("nodeName", "") for each in pods}
        return self._nodes.get(pod.get("uid"), "")


def _moment(event: Object) -> float:
    return datetime.fromisoformat(kube.event_time(event)).timestamp()
