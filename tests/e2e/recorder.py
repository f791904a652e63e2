"""A recorder of every version of the objects of one kind, so that tests can assert histories."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import defaultdict

from e2e.access import DEADLINE_SECONDS, wait_for
from support.api_client import Api, ApiError, Object

WATCH_SECONDS = 240


class Recorder(threading.Thread):
    """A watch on a collection. Reading a recorder with a dead thread raises AssertionError."""

    def __init__(self, api: Api, path: str, selector: str = "") -> None:
        super().__init__(daemon=True, name=f"recorder of {path}")
        self._api, self._path = api, path
        self._selector = f"labelSelector={selector}&" if selector else ""
        self._history: dict[str, list[Object]] = defaultdict(list)
        self._now: dict[tuple[str, str], Object] = {}
        self.gone: set[str] = set()
        """The uids of objects that were deleted."""
        self.gaps: list[str] = []
        """Why the collection was listed again: versions before the new list may be missing."""
        self._death = ""
        self._listed = threading.Event()

    def begin(self) -> Recorder:
        """Starts, and returns after the first list."""
        self.start()
        assert self._listed.wait(DEADLINE_SECONDS), f"no list of {self._path}"
        self.check()
        return self

    @property
    def history(self) -> dict[str, list[Object]]:
        """All versions of each object, by uid, the oldest first."""
        self.check()
        return self._history

    @property
    def now(self) -> dict[tuple[str, str], Object]:
        """The present objects, by namespace and name."""
        self.check()
        return self._now

    def check(self, known_gaps: int | None = None) -> None:
        """Raises AssertionError if the thread has died, or if there are unknown gaps."""
        assert not self._death, f"the {self.name} died: {self._death}"
        if known_gaps is not None:
            assert not (gaps := self.gaps[known_gaps:]), f"the {self.name} may have missed versions: {gaps}"

    def catch_up(self, item: Object) -> None:
        """Waits until this version of an object, or its deletion, is recorded."""
        uid, version = item["metadata"]["uid"], item["metadata"]["resourceVersion"]

        def is_recorded() -> bool:
            versions = list(self.history[uid])
            return uid in self.gone or any(one["metadata"]["resourceVersion"] == version for one in versions)

        wait_for(f"the {self.name} to have {_key(item)} at version {version}", is_recorded)

    def run(self) -> None:
        """Lists and watches until the process ends."""
        try:
            while True:
                reason = self._follow()
                if self._listed.is_set():
                    self.gaps.append(reason)
                time.sleep(0.5)
        except BaseException as error:
            self._death = repr(error)
            self._listed.set()

    def _follow(self) -> str:
        """Lists once and watches from there; returns why another list is necessary."""
        try:
            version = self._list()
            self._listed.set()
            while version:
                version = self._watch(version)
        except (ApiError, http.client.HTTPException, OSError, ValueError) as error:
            return repr(error)
        return "the watch was ended with an error event"

    def _list(self) -> str:
        found = self._api.request("GET", f"{self._path}?{self._selector}limit=5000")
        present = {}
        for item in found["items"]:
            self._take(item)
            present[_key(item)] = item
        for key in set(self._now) - set(present):
            self._forget(self._now[key])
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
        except (http.client.HTTPException, OSError):
            time.sleep(0.2)
        return version

    def _take(self, item: Object) -> None:
        versions = self._history[item["metadata"]["uid"]]
        if not versions or versions[-1]["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
            versions.append(item)
        self._now[_key(item)] = item

    def _forget(self, item: Object) -> None:
        self.gone.add(item["metadata"]["uid"])
        self._now.pop(_key(item), None)

    def of(self, namespace: str) -> list[Object]:
        """The present objects of a namespace."""
        return [item for key, item in list(self.now.items()) if key[0] == namespace]

    def ever(self, namespace: str) -> list[Object]:
        """The newest recorded version of every object of a namespace, deleted ones included."""
        return [versions[-1] for versions in self.histories(namespace)]

    def histories(self, namespace: str) -> list[list[Object]]:
        """All recorded versions of each object of a namespace."""
        found = [list(versions) for versions in list(self.history.values()) if versions]
        return [versions for versions in found if versions[0]["metadata"]["namespace"] == namespace]


def _key(item: Object) -> tuple[str, str]:
    return item["metadata"]["namespace"], item["metadata"]["name"]
