"""The log of one container: all of it, or followed until the container ends, over any number of connections."""

import contextlib
import itertools
import sys
from collections.abc import Iterator
from typing import Any

from horovodjob.api.constants import LABEL_ROLE
from horovodjob.client.cluster import kube
from horovodjob.client.cluster.connections import pause
from horovodjob.client.errors import TRANSIENT
from horovodjob.client.jobs.log_lines import LineBuffer, LogPosition

Object = dict[str, Any]
RETRY_SECONDS = 1
CONNECT_SECONDS = 10
# A program can be silent for an hour; after that, the connection is opened again in case it is dead.
SILENT_SECONDS = 3600
# After so many connections without new lines, the log is complete, even if they have not repeated all earlier lines.
SILENT_READS = 3
# The kubelet reports 400 for a container that has not started.
RETRIED = (*TRANSIENT, 400)


def all_lines(pod: Object, tail: int | None) -> Iterator[bytes]:
    """The lines that the container has written so far."""
    buffer = LineBuffer()
    with contextlib.closing(open_log(pod, tail_lines=tail)) as response:
        for part in response.stream():
            yield from buffer.lines(part)
    if rest := buffer.rest:
        yield rest


def followed(pod: Object, tail: int | None, *, longest: int = sys.maxsize) -> Iterator[list[bytes] | bytes]:
    """The lines of the container until it ends; as bytes, the end of an unfinished one, with the states of a bar.

    Of lines that are longer than `longest`, the middle is left out.
    """
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError

    position, buffer = LogPosition(begins_at_tail=tail is not None), LineBuffer()
    options: Object = {"tail_lines": tail}
    is_last, silent = False, 0
    for connection in itertools.count():
        has_news = False
        try:
            with contextlib.closing(open_log(pod, follow=True, timestamps=True, **options)) as response:
                if connection:  # after the request, which names the pod: another one can have its name
                    if (state := _state(pod)) is None:
                        break
                    is_last = "running" not in state
                buffer = LineBuffer(longest=longest, is_stamped=True)
                for part in _new_parts(response, buffer, position):
                    has_news = has_news or isinstance(part, list)
                    yield part
            # The end of a response can be that of a connection: the last one begins after the end of the container,
            # and repeats the last lines, unless their file was rotated.
            silent = 0 if has_news else silent + 1
            if is_last and silent and (position.is_complete or silent == SILENT_READS):
                break
        except (HTTPError, ApiException) as error:
            if isinstance(error, ApiException) and error.status not in RETRIED:
                if error.status == 404:
                    break
                raise
        if connection and not has_news:
            pause(RETRY_SECONDS)
        position.connect()
        if not position.is_at_start:
            options = {"since": position.since}
    if rest := buffer.rest.partition(b" ")[2]:
        yield [rest]


def _new_parts(response: Any, buffer: LineBuffer, position: LogPosition) -> Iterator[list[bytes] | bytes]:
    """What this connection sends, and earlier ones have not."""
    for part in response.stream():
        lines = [line for stamped in buffer.lines(part) if (line := position.new_line(stamped)) is not None]
        if lines:
            yield lines
        if state := buffer.state:
            yield state


def open_log(
    pod: Object,
    *,
    follow: bool = False,
    timestamps: bool = False,
    tail_lines: int | None = None,
    since: str | None = None,
) -> Any:
    """The response with the log of the pod's container, which the caller reads and closes. Raises ApiException."""
    from kubernetes.client import ApiException

    metadata, client = pod["metadata"], kube.client()
    values = {"container": metadata["labels"][LABEL_ROLE], "tailLines": tail_lines, "sinceTime": since}
    values |= {"follow": "true" if follow else None, "timestamps": "true" if timestamps else None}
    request = client.param_serialize(  # the client's own method has no sinceTime
        "GET",
        f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/log",
        query_params=[(name, value) for name, value in values.items() if value is not None],
        header_params={"Accept": "*/*"},
        auth_settings=["BearerToken"],
    )
    response = client.call_api(*request, _request_timeout=(CONNECT_SECONDS, SILENT_SECONDS)).response
    if response.status != 200:
        raise ApiException(http_resp=response)
    return response


def _container(pod: Object) -> Object:
    role = pod["metadata"]["labels"][LABEL_ROLE]
    statuses = pod.get("status", {}).get("containerStatuses", [])
    return next((status.get("state", {}) for status in statuses if status["name"] == role), {})


def has_started(pod: Object) -> bool:
    """Whether there is a log to read."""
    return bool({"running", "terminated"} & _container(pod).keys())


def _state(pod: Object) -> Object | None:
    """The state of the container of this pod, by UID; None if the pod was deleted."""
    from kubernetes.client import ApiException

    metadata = pod["metadata"]
    try:
        now = kube.plain(kube.core().read_namespaced_pod(metadata["name"], metadata["namespace"]))
    except ApiException as error:
        if error.status != 404:
            raise
        return None
    return _container(now) if now["metadata"]["uid"] == metadata["uid"] else None
