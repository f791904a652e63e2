"""Container logs of a job's pods, each line with the name of its pod."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Any, NamedTuple

from horovodjob.api.constants import LABEL_REPLICA_INDEX, LABEL_ROLE, Role
from horovodjob_cli.cluster import kube
from horovodjob_cli.cluster.watch import SYNCED, TRANSIENT, changes, job_versions
from horovodjob_cli.errors import CliError, NotFound
from horovodjob_cli.jobs import batchai_records

Object = dict[str, Any]
RETRY_SECONDS = 1
CONNECT_SECONDS = 10
# Overlap with the last line, by the kubelet's clock; repeated lines are dropped.
OVERLAP_SECONDS = 5
QUEUED_LINES = 10_000
# A program can be silent for an hour; after that, the connection is opened again in case it is dead.
SILENT_SECONDS = 3600
FILES = "what it wrote to its share is listed by `hvj job file list`"


class Line(NamedTuple):
    """A line of a log, without its newline."""

    source: str
    text: bytes


class Selection(NamedTuple):
    """The pods to read and the number of their last lines; by default all."""

    role: Role | None = None
    worker: int | None = None
    tail: int | None = None

    def has(self, pod: Object) -> bool:
        """Whether the selection includes the pod."""
        labels = pod["metadata"]["labels"]
        if self.worker is not None:
            return labels[LABEL_ROLE] == Role.WORKER and int(labels[LABEL_REPLICA_INDEX]) == self.worker
        return self.role is None or labels[LABEL_ROLE] == self.role


def source(pod: Object) -> str:
    """The pod in a line's prefix: launcher, worker-0."""
    labels = pod["metadata"]["labels"]
    return "launcher" if labels[LABEL_ROLE] == Role.LAUNCHER else f"worker-{labels[LABEL_REPLICA_INDEX]}"


def lines(job: Object, selection: Selection, *, follow: bool) -> Iterator[Line]:
    """The selected lines: with `follow`, until the job ends. Raises CliError if there is no such pod to read."""
    if follow and not batchai_records.is_finished(job):
        return followed_lines(job, selection)
    if any(map(selection.has, kube.pods(job))):
        return current_lines(job, selection)
    name, state = batchai_records.display_name(job), batchai_records.execution_state(job.get("status", {}))
    raise CliError(f"job {name} has no such pod ({state}); {FILES}")


def current_lines(job: Object, selection: Selection) -> Iterator[Line]:
    """The lines that the pods have written so far, one pod after the other."""
    for pod in kube.pods(job):
        if selection.has(pod) and has_started(pod):
            for line in _log(pod, tail_lines=selection.tail):
                yield Line(source(pod), line)


def followed_lines(job: Object, selection: Selection) -> Iterator[Line]:
    """The lines of all pods, including those of later attempts, as they arrive, until the job ends."""
    return (each for each in followed_job(job, selection) if isinstance(each, Line))


def followed_job(job: Object, selection: Selection) -> Iterator[Line | Object]:
    """The lines of all pods, and each version of the job, as they arrive, until the job ends or is deleted."""
    return _Follower(job, selection).news()


class _Follower:
    """Reads each pod's log in a separate thread; all lines and watch events go to one queue."""

    def __init__(self, job: Object, selection: Selection) -> None:
        self._job, self._selection = job, selection
        # Bounded, so that a slow terminal delays the readers instead of filling the memory.
        self._news: queue.Queue[tuple[str, Any]] = queue.Queue(QUEUED_LINES)
        self._begun: set[str] = set()
        self._reading: set[str] = set()

    def news(self) -> Iterator[Line | Object]:
        """Lines and versions until the job has ended and every log has been read to its end."""
        self._start(self._watch_pods)
        self._start(self._watch_job)
        ended = False
        while not ended or self._reading:
            match self._news.get():
                case "line" | "job", news:
                    yield news
                case "pod", pod:
                    self._read(pod)
                case "read", uid:
                    self._reading.remove(uid)
                case "ended", _:
                    ended = True
                    for pod in kube.pods(self._job):  # the watch of pods can be behind that of the job
                        self._read(pod)
                case "failed", error:
                    raise error

    def _start(self, target: Callable[..., None], *arguments: Any) -> None:
        def run() -> None:
            try:
                target(*arguments)
            except Exception as error:
                self._news.put(("failed", error))

        threading.Thread(target=copy_context().run, args=(run,), daemon=True).start()

    def _watch_job(self) -> None:
        with contextlib.suppress(NotFound):
            for version in job_versions(self._job):
                self._news.put(("job", version))
                if batchai_records.is_finished(version):
                    break
        self._news.put(("ended", None))

    def _watch_pods(self) -> None:
        selection = {
            "namespace": self._job["metadata"]["namespace"],
            "label_selector": kube.pod_selector(self._job),
        }
        for change, pod in changes(kube.core().list_namespaced_pod, selection):
            if change not in (SYNCED, "DELETED"):
                self._news.put(("pod", pod))

    def _read(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if uid not in self._begun and self._selection.has(pod) and has_started(pod):
            self._begun.add(uid)
            self._reading.add(uid)
            self._start(self._read_log, pod)

    def _read_log(self, pod: Object) -> None:
        for line in _followed_log(pod, self._selection.tail):
            self._news.put(("line", Line(source(pod), line)))
        self._news.put(("read", pod["metadata"]["uid"]))


def _followed_log(pod: Object, tail: int | None) -> Iterator[bytes]:
    """The lines of a container until it ends; resumes after a lost connection."""
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError

    last, read_at = b"", time.monotonic()
    options: Object = {"tail_lines": tail}
    while True:
        try:
            for stamped in _log(pod, follow=True, timestamps=True, **options):
                stamp, _, line = stamped.partition(b" ")
                if _moment(stamp) > _moment(last):
                    last, read_at = stamp, time.monotonic()
                    yield line
            if not _is_running(pod):
                return
        except (HTTPError, ApiException) as error:
            if isinstance(error, ApiException) and error.status not in (*TRANSIENT, 400):
                if error.status == 404:
                    return
                raise
        time.sleep(RETRY_SECONDS)
        if last:
            options = {"since_seconds": int(time.monotonic() - read_at) + OVERLAP_SECONDS}


def _moment(stamp: bytes) -> tuple[bytes, bytes]:
    """A sort key of an RFC 3339 time with any number of digits, all in the same time zone."""
    seconds, _, fraction = stamp.rstrip(b"Z").partition(b".")
    return seconds, fraction.ljust(9, b"0")


def _log(pod: Object, **options: Any) -> Iterator[bytes]:
    response = open_log(pod, **options)
    with contextlib.closing(response):
        rest = b""
        for part in response.stream():
            *lines, rest = (rest + part).split(b"\n")
            yield from lines
        if rest:
            yield rest


def open_log(pod: Object, **options: Any) -> Any:
    """The response with the log of the pod's container, which the caller reads and closes. Raises ApiException."""
    from kubernetes.client import ApiException

    metadata = pod["metadata"]
    response = kube.core().read_namespaced_pod_log(
        metadata["name"],
        metadata["namespace"],
        container=metadata["labels"][LABEL_ROLE],
        _preload_content=False,
        _request_timeout=(CONNECT_SECONDS, SILENT_SECONDS),
        **options,
    )
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


def _is_running(pod: Object) -> bool:
    """Whether the container of this pod, by UID, is still running."""
    metadata = pod["metadata"]
    now = kube.plain(kube.core().read_namespaced_pod(metadata["name"], metadata["namespace"]))
    return now["metadata"]["uid"] == metadata["uid"] and "running" in _container(now)
