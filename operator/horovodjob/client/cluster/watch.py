"""Watches of objects, opened again when they end or fail."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from horovodjob.client.cluster import kube
from horovodjob.client.cluster.connections import pause
from horovodjob.client.cluster.ticks import with_ticks
from horovodjob.client.errors import NotFound, is_transient
from horovodjob.client.messages import message

Object = dict[str, Any]
Objects = dict[str, Object]
"""Objects by UID."""
Result = TypeVar("Result")
WATCH_SECONDS = 240
# Connect, read: a connection without data after the end of the watch is dead, as after the suspension of a laptop.
TIMEOUT_SECONDS = (10, WATCH_SECONDS + 30)
RETRY_SECONDS = (0.5, 1, 2, 4, 8, 15)
SYNCED = "SYNCED"
# The API server no longer has the changes since a version.
EXPIRED = 410
LOST = "the connection to the cluster is lost; trying again"


def job_versions(job: Object) -> Iterator[Object]:
    """The job now, and after each change. Raises NotFound when it is deleted."""
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    selection = {**kube.JOBS, "namespace": namespace, "field_selector": f"metadata.name={name}"}
    yield job
    for change, version in changes(kube.custom().list_namespaced_custom_object, selection, job):
        if change == "DELETED":
            raise NotFound(f"job {name} was deleted from namespace {namespace}")
        if change != SYNCED:
            yield version


Check = Callable[[], None]


def wait_for_deletion(job: Object, check: Check = lambda: None) -> None:
    """Return when the job and its pods are deleted, as far as the user may see them.

    `check` is called each second and can raise.
    """
    from kubernetes.client import ApiException

    metadata = job["metadata"]
    jobs = {**kube.JOBS, "namespace": metadata["namespace"], "field_selector": f"metadata.name={metadata['name']}"}
    pods = {"namespace": metadata["namespace"], "label_selector": kube.pod_selector(job)}
    kind = "jobs"
    try:
        _wait_until_deleted(lambda: kube.custom().list_namespaced_custom_object, jobs, check, metadata["uid"])
        kind = "pods"
        _wait_until_deleted(lambda: kube.core().list_namespaced_pod, pods, check)
    except ApiException as error:
        if error.status != 403:
            raise
        message(
            f"the deletion of job {metadata['name']} is requested, and its end is not waited for: you may not list and "
            f"watch {kind} in namespace {metadata['namespace']}"
        )


def wait_for_namespace_deletion(namespace: Object, check: Check = lambda: None) -> None:
    """Return when the namespace and its contents are deleted. `check` is called each second and can raise."""
    metadata = namespace["metadata"]
    selection = {"field_selector": f"metadata.name={metadata['name']}"}
    _wait_until_deleted(lambda: kube.core().list_namespace, selection, check, metadata["uid"])


def _wait_until_deleted(
    method: Callable[[], Callable[..., Any]], selection: Object, check: Check, uid: str | None = None
) -> None:
    """Return when none of the selected objects, or not the one with this UID, exists."""
    left: set[str] = set()
    synced = False
    for news in with_ticks(lambda: changes(method(), selection)):
        check()
        if news is None:
            continue
        change, each = news
        synced = synced or change == SYNCED
        if change == "DELETED":
            left.discard(each["metadata"]["uid"])
        elif change != SYNCED and uid in (None, each["metadata"]["uid"]):
            left.add(each["metadata"]["uid"])
        if synced and not left:
            return


def retried(request: Callable[[], Result], check: Check = lambda: None) -> Result:
    """The result of a request, which is sent again while the connection is lost or the API server is overloaded.

    `check` is called before each repetition and can raise.
    """
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError

    for failures in itertools.count():
        try:
            return request()
        except (HTTPError, ApiException) as error:
            if not is_transient(error):
                raise
            check()
            if failures == 1:
                message(LOST)
            pause(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
    raise AssertionError


def _whole(each: Object) -> Object:
    return each


def changes(
    list_objects: Callable[..., Any],
    selection: Object,
    known: Object | None = None,
    extract: Callable[[Object], Object] = _whole,
) -> Iterator[tuple[str, Object]]:
    """ADDED, MODIFIED or DELETED and the object: first the existing ones, then SYNCED, then each change.

    With `known`, only changes after this version of it. After a lost connection, the watch continues where it ended;
    if the API server cannot do that, the objects are listed again and missed changes are reported. With `extract`, what
    it makes of each object is kept and reported instead of it; its metadata must have uid and resourceVersion.
    """
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError

    objects = {known["metadata"]["uid"]: known} if known else {}
    version = known["metadata"]["resourceVersion"] if known else ""
    connected, failures = False, 0
    while True:
        try:
            if not version:
                listed = _listed(list_objects, selection, objects, extract)
                version = listed.version
                yield from _differences(objects, listed)
                del listed  # what has changed would be held twice until the next list
                yield SYNCED, {}
            connected = True
            for event in _events(list_objects, selection, version):
                change, failures = event["type"], 0
                version = _version(event["raw_object"])
                if change == "BOOKMARK":
                    continue
                each = extract(event["raw_object"])
                uid = each["metadata"]["uid"]
                objects |= {uid: each}
                if change == "DELETED":
                    del objects[uid]
                yield change, each
        except (HTTPError, ApiException) as error:
            if not connected or not is_transient(error):
                raise
            if failures or getattr(error, "status", 0) == EXPIRED:
                version = ""
            if failures == 1:
                message(LOST)
            pause(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
            failures += 1


def _events(list_objects: Callable[..., Any], selection: Object, version: str) -> Iterator[Object]:
    """The events of one watch after this version, bookmarks among them."""
    from kubernetes.watch import Watch

    events: Iterator[Object] = Watch().stream(
        list_objects,
        **selection,
        resource_version=version,
        allow_watch_bookmarks=True,
        timeout_seconds=WATCH_SECONDS,
        _request_timeout=TIMEOUT_SECONDS,
    )
    return events


@dataclass(slots=True)
class _Listed:
    """A list: its new and changed objects, the UIDs of the known objects that have not changed, and its version."""

    changed: Objects = field(default_factory=dict)
    unchanged: set[str] = field(default_factory=set)
    version: str = ""


def _differences(objects: Objects, listed: _Listed) -> Iterator[tuple[str, Object]]:
    """Apply a list to `objects`, and give its changes: deletions first, because new objects can reuse their names."""
    for uid in [each for each in objects if each not in listed.unchanged and each not in listed.changed]:
        yield "DELETED", objects.pop(uid)
    for uid, each in listed.changed.items():
        change = "MODIFIED" if uid in objects else "ADDED"
        objects[uid] = each
        yield change, each


def _listed(
    list_objects: Callable[..., Any], selection: Object, known: Objects, extract: Callable[[Object], Object]
) -> _Listed:
    """All pages of a list; the version that all of them have."""
    found = _Listed()
    token = None
    while True:
        token = _read_page(found, list_objects, {**selection, "_continue": token}, known, extract)
        if not token:
            return found


def _read_page(
    found: _Listed,
    list_objects: Callable[..., Any],
    selection: Object,
    known: Objects,
    extract: Callable[[Object], Object],
) -> str:
    """The token of the next page. Nothing of what the API server sent remains: it is larger than what is kept."""
    listing = kube.page(list_objects, selection)
    for each in listing["items"]:
        before = known.get(uid := each["metadata"]["uid"])
        if before and _version(before) == _version(each):
            found.unchanged.add(before["metadata"]["uid"])  # the same text as before
        else:
            found.changed[uid] = extract(each)
    found.version = _version(listing)
    return str(listing["metadata"].get("continue", ""))


def _version(each: Object) -> str:
    return str(each["metadata"]["resourceVersion"])
