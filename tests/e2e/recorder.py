"""Remembers every version of the objects of one kind, so that tests can ask what happened and not only what is."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict

import urllib3

from e2e.access import Api, Object, Refused

WATCH_SECONDS = 240


class Recorder(threading.Thread):
    """Follows a collection with a watch."""

    def __init__(self, api: Api, path: str, selector: str = "") -> None:
        super().__init__(daemon=True, name=f"recorder of {path}")
        self._api, self._path = api, path
        self._selector = f"labelSelector={selector}&" if selector else ""
        self.history: dict[str, list[Object]] = defaultdict(list)
        """All versions of each object, by uid, the oldest first."""
        self.gone: set[str] = set()
        """The uids of objects that were deleted."""
        self.now: dict[tuple[str, str], Object] = {}
        """The present objects, by namespace and name."""
        self.gaps = 0
        """How often versions may have been missed."""
        self._listed = threading.Event()

    def begin(self) -> Recorder:
        """Starts, and returns when the first list is in."""
        self.start()
        assert self._listed.wait(30), f"no list of {self._path}"
        return self

    def run(self) -> None:
        """Lists and watches for ever."""
        while True:
            try:
                version = self._list()
                self._listed.set()
                while version:
                    version = self._watch(version)
            except (Refused, urllib3.exceptions.HTTPError, OSError, ValueError):
                time.sleep(0.5)
            self.gaps += 1

    def _list(self) -> str:
        found = self._api.request("GET", f"{self._path}?{self._selector}limit=5000")
        present = {}
        for item in found["items"]:
            self._take(item)
            present[_key(item)] = item
        for key in set(self.now) - set(present):
            self.gone.add(self.now[key]["metadata"]["uid"])
            del self.now[key]
        return str(found["metadata"]["resourceVersion"])

    def _watch(self, version: str) -> str:
        query = f"{self._selector}watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}"
        try:
            for line in self._api.lines(f"{self._path}?{query}&resourceVersion={version}", WATCH_SECONDS + 30):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return ""
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] == "DELETED":
                    self._forget(event["object"])
                elif event["type"] != "BOOKMARK":
                    self._take(event["object"])
        except (urllib3.exceptions.HTTPError, OSError):
            time.sleep(0.2)
        return version

    def _take(self, item: Object) -> None:
        versions = self.history[item["metadata"]["uid"]]
        if not versions or versions[-1]["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
            versions.append(item)
        self.now[_key(item)] = item

    def _forget(self, item: Object) -> None:
        self.gone.add(item["metadata"]["uid"])
        self.now.pop(_key(item), None)

    def of(self, namespace: str) -> list[Object]:
        """The present objects of a namespace."""
        return [item for key, item in list(self.now.items()) if key[0] == namespace]

    def ever(self, namespace: str) -> list[Object]:
        """The newest known version of every object that a namespace ever had."""
        newest = [versions[-1] for versions in list(self.history.values())]
        return [item for item in newest if item["metadata"]["namespace"] == namespace]


def _key(item: Object) -> tuple[str, str]:
    return item["metadata"]["namespace"], item["metadata"]["name"]
