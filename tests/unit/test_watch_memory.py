"""What a watch of thousands of objects holds, and when it lists them again."""

import gc
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes.client import ApiException
from urllib3.exceptions import ProtocolError

from horovodjob.client.cluster import watch
from horovodjob.client.cluster.kube import OBJECTS_OF_A_PAGE
from horovodjob.client.cluster.watch import SYNCED, changes

Object = dict[str, Any]
OBJECTS = 2 * OBJECTS_OF_A_PAGE
RAW = "of a raw object"
LOST, GONE = ProtocolError("the connection broke"), ApiException(status=410)


class Extract(dict[str, Any]):
    """What is kept of an object."""


def extract(raw: Object) -> Object:
    return Extract(metadata=dict(raw["metadata"]))


def alive(kind: type) -> list[Any]:
    return [each for each in gc.get_objects() if type(each) is kind]


def raw_objects() -> int:
    """How many objects exist as the API server sent them."""
    return sum(1 for each in alive(dict) if RAW in each)


class Response:
    """A page of a list."""

    status = 200

    def __init__(self, data: bytes) -> None:
        self.data = data


class Server:
    """Lists in pages. Each watch ends with the next error; `held` has the raw objects that each request has met."""

    def __init__(self, *ends: Exception) -> None:
        self.versions = dict.fromkeys(range(OBJECTS), 1)
        self.ends, self.held, self.lists = iter(ends), [0], 0
        self.watched: list[str] = []

    def list(self, *, _continue: str | None = None, limit: int, **_: Any) -> Response:
        self.held.append(raw_objects())
        self.lists += not _continue
        names = list(itertools.islice(self.versions, int(_continue or 0), int(_continue or 0) + limit))
        items = [
            {RAW: {"curves": [0.5]}, "metadata": {"uid": str(name), "resourceVersion": str(self.versions[name])}}
            for name in names
        ]
        end = int(_continue or 0) + limit
        metadata = {"resourceVersion": "100", "continue": str(end) if end < len(self.versions) else ""}
        return Response(json.dumps({"items": items, "metadata": metadata}).encode())

    def stream(self, *_: Any, resource_version: str, **__: Any) -> Iterator[Object]:
        self.held.append(raw_objects())
        self.watched.append(resource_version)
        metadata = {"uid": "0", "resourceVersion": "101"}
        yield {"type": "MODIFIED", "raw_object": {RAW: {"curves": [0.5]}, "metadata": metadata}}
        raise next(self.ends)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[[Server], Iterator[tuple[str, Object]]]:
    """The changes of a server."""

    def begin(server: Server) -> Iterator[tuple[str, Object]]:
        monkeypatch.setattr("kubernetes.watch.Watch.stream", server.stream)
        monkeypatch.setattr(watch, "pause", lambda _: None)
        return changes(server.list, {}, extract=extract)

    return begin


def until_synced(found: Iterator[tuple[str, Object]]) -> list[tuple[str, str]]:
    read = itertools.takewhile(lambda change: change[0] != SYNCED, found)
    return [(change, each["metadata"]["uid"]) for change, each in read]


def test_no_page_of_raw_objects_is_held(watched: Callable[[Server], Iterator[tuple[str, Object]]]) -> None:
    server = Server(GONE, LOST)
    found = watched(server)
    assert len(until_synced(found)) == OBJECTS
    assert raw_objects() == 0
    until_synced(found)
    next(found)
    assert max(server.held) <= 1, "the last event of the watch"


def test_lists_hold_each_object_once(watched: Callable[[Server], Iterator[tuple[str, Object]]]) -> None:
    server = Server(*[GONE] * 5)
    gc.collect()
    others = len(alive(Extract))
    found = watched(server)
    until_synced(found)
    for _ in range(4):
        server.versions = {name: version + (name % 10 == 0) for name, version in server.versions.items()}
        server.versions[max(server.versions) + 1] = server.versions.pop(min(server.versions))
        until_synced(found)
        assert len(alive(Extract)) - others <= OBJECTS + 1, "the last event of the watch"


def test_a_list_reports_what_has_changed_since_the_watch_ended(
    watched: Callable[[Server], Iterator[tuple[str, Object]]],
) -> None:
    server = Server(GONE)
    found = watched(server)
    until_synced(found)
    server.versions = {name: version + (name in (0, 3)) for name, version in server.versions.items() if name != 7}
    server.versions[OBJECTS] = 1
    assert until_synced(found) == [
        ("MODIFIED", "0"),
        ("DELETED", "7"),
        ("MODIFIED", "0"),
        ("MODIFIED", "3"),
        ("ADDED", str(OBJECTS)),
    ]


def test_a_watch_continues_after_a_lost_connection_without_a_list(
    watched: Callable[[Server], Iterator[tuple[str, Object]]],
) -> None:
    server = Server(LOST, LOST)
    found = watched(server)
    until_synced(found)
    assert [next(found)[0] for _ in range(2)] == ["MODIFIED", "MODIFIED"]
    assert (server.lists, server.watched) == (1, ["100", "101"])
