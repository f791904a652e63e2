"""Container logs of a job's pods, each line with the name of its pod."""

import contextlib
import queue
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from horovodjob.api.constants import LABEL_REPLICA_INDEX, LABEL_ROLE, Role
from horovodjob.api.managed_by import is_dispatched
from horovodjob.client.cluster import kube
from horovodjob.client.cluster.connections import Closed, Connections
from horovodjob.client.cluster.watch import SYNCED, changes, job_versions
from horovodjob.client.errors import ClientError, NotFound
from horovodjob.client.jobs import batchai_records, other_cluster
from horovodjob.client.jobs.container_log import all_lines, followed, has_started
from horovodjob.client.jobs.wait_limit import WaitLimit

Object = dict[str, Any]
# As the API server sends it: 64 KiB at most, so that a queue of them has a limit in bytes.
QUEUED_PARTS = 256
TICK_SECONDS = 1
FILES = "what it wrote to its share is listed by `hvj job file list`"


class Line(NamedTuple):
    """A line of a log, without its newline."""

    source: str
    data: bytes

    @property
    def text(self) -> str:
        """The line as text; bytes that are not UTF-8 are replaced."""
        return self.data.decode(errors="replace")


class Unfinished(NamedTuple):
    """The end of a line that has no newline yet, with the states of a progress bar if it is one."""

    source: str
    data: bytes


News = Line | Unfinished | Object | None


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


def lines(job: Object, selection: Selection, limit: WaitLimit, *, follow: bool) -> Iterator[Line | Unfinished]:
    """The selected lines: with `follow`, until the job ends, with the states of progress bars.

    Raises ClientError if there is no such pod to read here, Stalled, TimedOut.
    """
    if follow and not batchai_records.is_finished(job) and not is_dispatched(job["spec"]):
        return followed_lines(job, selection, limit)
    if any(map(selection.has, other_cluster.pods(job))):
        return current_lines(job, selection)
    name, state = batchai_records.display_name(job), batchai_records.execution_state(job.get("status", {}))
    raise ClientError(f"job {name} has no such pod ({state}); {FILES}")


def current_lines(job: Object, selection: Selection) -> Iterator[Line]:
    """The lines that the pods have written so far, one pod after the other."""
    for pod in kube.pods(job):
        if selection.has(pod) and has_started(pod):
            for line in all_lines(pod, selection.tail):
                yield Line(source(pod), line)


def followed_lines(job: Object, selection: Selection, limit: WaitLimit) -> Iterator[Line | Unfinished]:
    """The lines of all pods, including those of later attempts, as they arrive, until the job ends."""
    for news in followed_job(job, selection):
        if isinstance(news, Line | Unfinished):
            yield news
        elif news is not None:
            job = news
        limit.check(job)


def followed_job(job: Object, selection: Selection) -> Iterator[News]:
    """The lines of all pods, and each version of the job, as they arrive, until the job ends or is deleted.

    None each second without any.
    """
    return _Follower(job, selection).news()


class _Follower:
    """Reads each pod's log in a separate thread; all lines and watch events go to one queue."""

    def __init__(self, job: Object, selection: Selection) -> None:
        self._job, self._selection = job, selection
        self._connections = Connections(kube.client())
        # Bounded, so that a slow terminal delays the readers instead of filling the memory.
        self._news: queue.Queue[tuple[str, Any]] = queue.Queue(QUEUED_PARTS)
        self._begun: set[str] = set()
        self._reading: set[str] = set()

    def news(self) -> Iterator[News]:
        """Lines and versions until the job has ended and every log has been read to its end.

        The threads end with this iterator, also when its user leaves it before its end.
        """
        try:
            yield from self._all_news()
        finally:
            self._connections.close()
            with contextlib.suppress(queue.Empty):  # room for the threads that wait for it
                while True:
                    self._news.get_nowait()
            self._connections.join()

    def _all_news(self) -> Iterator[News]:
        self._start(self._watch_pods)
        self._start(self._watch_job)
        ended = False
        while not ended or self._reading:
            match self._next():
                case "lines", lines:
                    yield from lines
                case "job" | "unfinished" | "silence", news:
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

    def _next(self) -> tuple[str, Any]:
        try:
            return self._news.get(timeout=TICK_SECONDS)
        except queue.Empty:
            return "silence", None

    def _start(self, target: Callable[..., None], *arguments: Any) -> None:
        def run() -> None:
            try:
                target(*arguments)
            except Closed:
                raise
            except Exception as error:
                self._put("failed", error)

        self._connections.start(run)

    def _put(self, kind: str, news: Any = None) -> None:
        self._connections.check()
        self._news.put((kind, news))

    def _watch_job(self) -> None:
        with contextlib.suppress(NotFound):
            for version in job_versions(self._job):
                self._put("job", version)
                if batchai_records.is_finished(version):
                    break
        self._put("ended")

    def _watch_pods(self) -> None:
        selection = {
            "namespace": self._job["metadata"]["namespace"],
            "label_selector": kube.pod_selector(self._job),
        }
        for change, pod in changes(kube.core().list_namespaced_pod, selection):
            if change not in (SYNCED, "DELETED"):
                self._put("pod", pod)

    def _read(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if uid not in self._begun and self._selection.has(pod) and has_started(pod):
            self._begun.add(uid)
            self._reading.add(uid)
            self._start(self._read_log, pod)

    def _read_log(self, pod: Object) -> None:
        name = source(pod)
        for part in followed(pod, self._selection.tail):
            if isinstance(part, bytes):
                self._put("unfinished", Unfinished(name, part))
            else:
                self._put("lines", [Line(name, line) for line in part])
        self._put("read", pod["metadata"]["uid"])
