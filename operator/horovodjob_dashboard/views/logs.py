"""The logs of a job, followed in the page or as a file: of all ranks, of a pod, or on the share of the job."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

from aiohttp import web

from horovodjob.api.azure_files import AzureFileShare
from horovodjob.api.constants import LABEL_ROLE, Role
from horovodjob.client.cluster import kube
from horovodjob.client.errors import ClientError, NotFound, is_transient, translated
from horovodjob.client.jobs.batchai_records import is_finished
from horovodjob.client.jobs.container_log import has_started
from horovodjob.client.jobs.logs import Selection
from horovodjob_dashboard import log_stream
from horovodjob_dashboard.access_guard import HEADERS
from horovodjob_dashboard.event_streams import EventStreams
from horovodjob_dashboard.job_feed import JobFeed, Key
from horovodjob_dashboard.log_stream import Rows
from horovodjob_dashboard.pages import VIEWER
from horovodjob_dashboard.viewer import Right

Object = dict[str, Any]
LOG = "/jobs/{namespace}/{name}/log/{source}"
# Names that no pod of a job has: theirs end with a role.
ALL_RANKS, SHARE = "all", "share"
# mpirun forwards the output of all ranks to the launcher.
LAUNCHER = Selection(Role.LAUNCHER)
# A pod can start without a change of its job.
SECONDS_BETWEEN_PODS = 5


class LogsView:
    """Logs, with requests of the viewer's own to the API server and to the share."""

    def __init__(self, streams: EventStreams) -> None:
        self._streams = streams

    def routes(self) -> list[web.RouteDef]:
        """The addresses of a log."""
        return [web.get(f"{LOG}.txt", self.file), web.get(LOG, self.followed)]

    async def followed(self, request: web.Request) -> web.StreamResponse:
        """A stream with the last lines of a log and each new one."""
        source = request.match_info["source"]
        if source in (ALL_RANKS, SHARE):
            feed = await request[VIEWER].feed(_key(request)[0])  # a refusal is a response, not a message
            rows = _all_ranks(request) if source == ALL_RANKS else _share(request, feed)
        else:
            rows = log_stream.rows(await _pod(request))
        end = "The container has ended." if source not in (ALL_RANKS, SHARE) else "The log has ended."
        return await self._streams.send(request, _messages(rows, end), _refusal(request))

    async def file(self, request: web.Request) -> web.StreamResponse:
        """The whole log, as a file."""
        with self._streams.one(request[VIEWER]):
            return await _file(request)


async def _refusal(request: web.Request) -> None:
    """Returns when the viewer has lost a right that the log needs."""
    viewer, (namespace, name) = request[VIEWER], _key(request)
    rights = [Right("get", "pods", namespace, subresource="log")]
    if request.match_info["source"] in (ALL_RANKS, SHARE):
        spec = (await _job(await viewer.feed(namespace), (namespace, name)))["spec"]
        shares = map(AzureFileShare.model_validate, spec.get("azureFiles", []))
        secrets = {share.key_secret for share in shares}
        rights += [Right("get", "secrets", namespace, name=secret) for secret in secrets]
    await viewer.loses(rights, namespace)


async def _messages(rows: AsyncGenerator[Rows], end: str) -> AsyncGenerator[str]:
    """The rows as messages of a stream, and last why it ends: for good, or with a problem that can pass."""
    try:
        async with contextlib.aclosing(rows) as read:
            async for part in read:
                yield json.dumps(part._asdict())
    except Exception as error:
        can_pass = is_transient(error) or getattr(error, "status", 0) == 401
        yield json.dumps({"problem" if can_pass else "end": str(translated(error) or error)})
    else:
        yield json.dumps({"end": end})


async def _all_ranks(request: web.Request) -> AsyncGenerator[Rows]:
    """The output of all ranks: the log of each launcher while there is one, else the file on the share."""
    viewer, key = request[VIEWER], _key(request)
    read: set[str] = set()
    while True:
        feed = await viewer.feed(key[0])
        version = feed.version(key)
        job = await _job(feed, key)
        try:
            pod = await asyncio.to_thread(_launcher, job)
        except Exception as error:
            if is_transient(error) or (refusal := translated(error)) is None:
                raise
            async for part in _share_instead(request, feed, refusal):
                yield part
            return
        if pod and pod["metadata"]["uid"] not in read:
            read.add(pod["metadata"]["uid"])
            try:
                async for part in log_stream.rows(pod):
                    yield part
            except Exception as error:
                if not isinstance(translated(error), NotFound):
                    raise
                # The pod was deleted in the meantime, and a next attempt may have another.
        elif is_finished(job):
            if not read:
                async for part in _share(request, feed):
                    yield part
            return
        else:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SECONDS_BETWEEN_PODS):
                    await feed.wait_for_change(version, key)


async def _share_instead(request: web.Request, feed: JobFeed, refusal: Exception) -> AsyncGenerator[Rows]:
    """The file on the share, for a viewer without the right to read pods."""
    try:
        async for part in _share(request, feed):
            yield part
    except Exception as error:
        raise ClientError(f"{refusal}. {translated(error) or error}") from error


async def _share(request: web.Request, feed: JobFeed) -> AsyncGenerator[Rows]:
    job, storage = await _job(feed, _key(request)), request[VIEWER].storage
    async for part in log_stream.stdout_rows(job, storage, _end(request, feed)):
        yield part


def _end(request: web.Request, feed: JobFeed) -> Callable[[], bool]:
    """Whether the job has ended, at the time of the call."""

    def has_ended() -> bool:
        row = feed.rows.get(_key(request))
        return row is None or row.is_finished

    return has_ended


async def _file(request: web.Request) -> web.StreamResponse:
    source, key = request.match_info["source"], _key(request)
    feed = await request[VIEWER].feed(key[0])
    pod = None if source == SHARE else await _log_pod(request, feed)
    name = pod["metadata"]["name"] if pod else f"{key[1]}-stdout"
    response = web.StreamResponse(headers={**HEADERS, "Content-Disposition": f'attachment; filename="{name}.log"'})
    response.content_type = "text/plain"
    if pod:
        stream = log_stream.chunks(pod)
    else:
        job = await _job(feed, key)
        stream = log_stream.stdout_chunks(job, request[VIEWER].storage, _end(request, feed))
    async with contextlib.aclosing(stream) as read:
        first = await anext(read, b"")  # an error is a page, not a broken file
        await response.prepare(request)
        await response.write(first)
        try:
            async for chunk in read:
                await response.write(chunk)
        except Exception as error:
            if translated(error) is None:
                raise
            # Without the end of the response, the browser reports that the file is incomplete.
            assert request.transport
            request.transport.abort()
    return response


async def _log_pod(request: web.Request, feed: JobFeed) -> Object | None:
    """The pod with the log; None if the launcher has none, or not for this viewer."""
    if request.match_info["source"] != ALL_RANKS:
        return await _pod(request)
    try:
        return await asyncio.to_thread(_launcher, await _job(feed, _key(request)))
    except Exception as error:
        if translated(error) is None:
            raise
        return None


async def _job(feed: JobFeed, key: Key) -> Object:
    job = feed.job(key) or await asyncio.to_thread(kube.find_job, key[1], key[0])
    if job is None:
        raise NotFound(f"job {key[1]} does not exist in namespace {key[0]}; it may have been deleted")
    return job


def _launcher(job: Object) -> Object | None:
    """The launcher with a log, if there is one."""
    return next((pod for pod in kube.pods(job) if LAUNCHER.has(pod) and has_started(pod)), None)


def _key(request: web.Request) -> Key:
    return request.match_info["namespace"], request.match_info["name"]


async def _pod(request: web.Request) -> Object:
    name = request.match_info["source"]
    namespace = request.match_info["namespace"]
    pod: Object = kube.plain(await asyncio.to_thread(kube.core().read_namespaced_pod, name, namespace))
    if LABEL_ROLE not in (pod["metadata"].get("labels") or {}):
        raise NotFound(f"pod {name} of namespace {namespace} is not one of a job")
    return pod
