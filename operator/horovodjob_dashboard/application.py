"""The pages of the dashboard and their addresses."""

import asyncio
import codecs
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
from aiohttp import web

from horovodjob.api.constants import Phase
from horovodjob.training_history import comparison, metric_names
from horovodjob_cli.cluster import kube
from horovodjob_cli.errors import NotFound, translated
from horovodjob_cli.jobs.job_times import active_seconds, current_time, duration_text, job_times
from horovodjob_dashboard import job_details, log_stream
from horovodjob_dashboard.access_guard import HEADERS, AccessGuard
from horovodjob_dashboard.curves import charts_of_a_job, charts_of_jobs
from horovodjob_dashboard.job_feed import JobFeed, Key
from horovodjob_dashboard.job_rows import Selection, page, row

HERE = Path(__file__).parent
# Between two messages of the same stream: a browser that draws more often shows nothing more.
SECONDS_BETWEEN_CHANGES = 0.5
# A stream without a message for this long says that it lives; proxies end silent ones.
HEARTBEAT_SECONDS = 20
MAX_STREAMS = 32
MAX_COMPARED = 8
ACTIONS = {
    "suspend": {"runPolicy": {"suspend": True}},
    "resume": {"runPolicy": {"suspend": False}},
    "terminate": {"runPolicy": {"terminate": True}},
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Dashboard:
    """Answers the requests of the pages from the feed of jobs and, for one job, from the API server."""

    def __init__(self, feed: JobFeed, cluster: str) -> None:
        self._feed, self._cluster = feed, cluster
        self._streams = 0
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(HERE / "templates"), autoescape=True, undefined=jinja2.StrictUndefined
        )
        self._templates.globals |= {"cluster": cluster, "phases": list(Phase)}
        self._templates.filters |= {"age": _age, "duration": _duration, "clock": _clock}

    def routes(self) -> list[web.AbstractRouteDef]:
        """The addresses of the dashboard."""
        job = "/jobs/{namespace}/{name}"
        return [
            web.get("/", self.jobs),
            web.get("/rows", self.rows),
            web.get("/changes", self.changes),
            web.get("/compare", self.compare),
            web.get(job, self.job),
            web.get(f"{job}/state", self.state),
            web.get(f"{job}/changes", self.changes),
            web.get(f"{job}/log/{{pod}}.txt", self.log_file),
            web.get(f"{job}/log/{{pod}}", self.log),
            web.post(f"{job}/{{action:suspend|resume|terminate}}", self.act),
            web.static("/static", HERE / "static"),
        ]

    async def jobs(self, request: web.Request) -> web.Response:
        """The list of jobs."""
        return self._page("jobs.html", self._listed(request))

    async def rows(self, request: web.Request) -> web.Response:
        """The rows of the list, which replace those in the page after a change."""
        return self._page("job_rows.html", self._listed(request))

    async def job(self, request: web.Request) -> web.Response:
        """The page of a job."""
        return self._page("job.html", await self._details(request))

    async def state(self, request: web.Request) -> web.Response:
        """The changing part of the page of a job."""
        return self._page("job_state.html", await self._details(request))

    async def compare(self, request: web.Request) -> web.Response:
        """The curves of several jobs over each other, and what differs between the jobs."""
        names = request.query.getall("job", [])[:MAX_COMPARED]
        found = {name: self._feed.jobs[key] for name in names if (key := _key(name)) in self._feed.jobs}
        metrics = metric_names(found.values())
        metric = request.query.get("metric", "")
        metric = metric if metric in metrics else next(iter(metrics), "")
        rows = comparison(list(found.values()), metric) if metric else []
        settings = list(dict.fromkeys(name for each in rows for name in each["settings"]))
        return self._page(
            "compare.html",
            {
                "names": list(found),
                "missing": [name for name in names if name not in found],
                "charts": charts_of_jobs(found),
                "metrics": metrics,
                "metric": metric,
                "rows": rows,
                "settings": settings,
            },
        )

    async def act(self, request: web.Request) -> web.StreamResponse:
        """Suspends, resumes or terminates the job that the page showed, by its UID."""
        form = await request.post()
        action = request.match_info["action"]
        job = {"metadata": {**request.match_info, "uid": str(form.get("uid", ""))}}
        await asyncio.to_thread(kube.patch_job, job, ACTIONS[action])
        return web.HTTPSeeOther(f"/jobs/{request.match_info['namespace']}/{request.match_info['name']}")

    async def changes(self, request: web.Request) -> web.StreamResponse:
        """A stream with a message after each change of the jobs, or of one job."""
        name = request.match_info
        key = (name["namespace"], name["name"]) if name else None

        async def versions() -> AsyncIterator[str]:
            since = request.query.get("since", "")
            version = int(since) if since.isdecimal() and len(since) < 18 else -1
            while True:
                version = await self._feed.wait_for_change(version, key)
                yield str(version)
                await asyncio.sleep(SECONDS_BETWEEN_CHANGES)

        return await self._stream(request, versions())

    async def log(self, request: web.Request) -> web.StreamResponse:
        """A stream with the last lines of a pod's log and each new one."""
        pod = await self._pod(request)

        async def messages() -> AsyncIterator[str]:
            decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
            try:
                async for chunk in log_stream.chunks(pod, follow=True):
                    yield json.dumps({"text": decoder.decode(chunk)})
            except Exception as error:
                yield json.dumps({"end": str(translated(error) or error)})
            else:
                yield json.dumps({"end": "The container has ended."})

        return await self._stream(request, messages())

    async def log_file(self, request: web.Request) -> web.StreamResponse:
        """The whole log of a pod, as a file."""
        pod = await self._pod(request)
        name = pod["metadata"]["name"]
        response = web.StreamResponse(headers={**HEADERS, "Content-Disposition": f'attachment; filename="{name}.log"'})
        response.content_type = "text/plain"
        stream = log_stream.chunks(pod, follow=False)
        first = await anext(stream, b"")  # an error is a page, not a broken file
        await response.prepare(request)
        await response.write(first)
        async for chunk in stream:
            await response.write(chunk)
        return response

    def _listed(self, request: web.Request) -> dict[str, Any]:
        selection = Selection.from_query(request.query)
        rows = self._feed.rows.values()
        return {
            "feed": self._feed,
            "selection": selection,
            "page": page(rows, selection),
            "experiments": sorted({each.experiment for each in rows if each.experiment}),
            "namespaces": sorted({each.namespace for each in rows}),
            "version": self._feed.version(),
        }

    async def _details(self, request: web.Request) -> dict[str, Any]:
        key = (request.match_info["namespace"], request.match_info["name"])
        version = self._feed.version(key)
        job = self._feed.jobs.get(key) or await asyncio.to_thread(kube.find_job, key[1], key[0])
        if job is None:
            raise NotFound(f"job {key[1]} does not exist in namespace {key[0]}; it may have been deleted")
        pods, pods_error = await _or_error(kube.pods, job)
        events = await asyncio.to_thread(kube.events, job)
        shown = row(job)
        return {
            "row": shown,
            "uid": job["metadata"]["uid"],
            "workers_ready": (job.get("status") or {}).get("workersReady", ""),
            "is_suspended": bool((job["spec"].get("runPolicy") or {}).get("suspend")),
            "version": version,
            "pods": [job_details.pod_row(pod) for pod in pods],
            "pods_error": pods_error,
            "timeline": job_details.timeline(job, events or []),
            "may_read_events": events is not None,
            "charts": charts_of_a_job(job),
            "gpu_hours": job_times(job, current_time())["gpuHours"],
            "manifest": job_details.manifest(job),
            "commands": job_details.commands(job),
        }

    async def _pod(self, request: web.Request) -> dict[str, Any]:
        namespace, name = request.match_info["namespace"], request.match_info["pod"]
        pod: dict[str, Any] = kube.plain(await asyncio.to_thread(kube.core().read_namespaced_pod, name, namespace))
        return pod

    async def _stream(self, request: web.Request, messages: AsyncIterator[str]) -> web.StreamResponse:
        """Server-sent events until the browser goes, or the messages end."""
        if self._streams >= MAX_STREAMS:
            return web.Response(status=429, text=f"More than {MAX_STREAMS} pages are open; close some of them.\n")
        self._streams += 1
        response = web.StreamResponse(headers=HEADERS)
        response.content_type = "text/event-stream"
        await response.prepare(request)
        following = asyncio.ensure_future(anext(messages))
        try:
            while True:
                done, _ = await asyncio.wait((following,), timeout=HEARTBEAT_SECONDS)
                if not done:
                    await response.write(b":\n\n")
                    continue
                await response.write(f"data: {following.result()}\n\n".encode())
                following = asyncio.ensure_future(anext(messages))
        except (StopAsyncIteration, ConnectionError):
            return response
        finally:
            self._streams -= 1
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await messages.aclose()  # type: ignore[attr-defined]

    def _page(self, template: str, values: dict[str, Any], status: int = 200) -> web.Response:
        text = self._templates.get_template(template).render(values)
        return web.Response(text=text, content_type="text/html", status=status)

    @web.middleware
    async def errors_as_pages(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """An error of the API server as a page with its sentence."""
        try:
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            return self._page("message.html", {"sentence": f"There is no page {request.path}."}, error.status)
        except Exception as error:
            found = translated(error) if not isinstance(error, NotFound) else error
            if found is None:
                raise
            status = 404 if isinstance(found, NotFound) else getattr(error, "status", 0) or 502
            return self._page("message.html", {"sentence": str(found)}, status)


def application(feed: JobFeed, cluster: str, guard: AccessGuard) -> web.Application:
    """The dashboard as an application of aiohttp."""
    dashboard = Dashboard(feed, cluster)
    made = web.Application(middlewares=[guard.check, dashboard.errors_as_pages])
    made.add_routes(dashboard.routes())
    return made


async def _or_error(function: Callable[[Any], Any], job: Any) -> tuple[list[Any], str]:
    """What the function returns, and an empty sentence; or nothing, and why the API server refused it."""
    try:
        return await asyncio.to_thread(function, job), ""
    except Exception as error:
        if (found := translated(error)) is None:
            raise
        return [], str(found)


def _key(name: str) -> Key:
    namespace, _, job = name.partition("/")
    return namespace, job


def _age(moment: str) -> str:
    return duration_text((current_time() - datetime.fromisoformat(moment)).total_seconds())


def _duration(status: dict[str, Any]) -> str:
    """How long the job has been active; empty before its admission."""
    seconds = active_seconds(status, current_time())
    return "" if seconds is None else duration_text(seconds)


def _clock(moment: str) -> str:
    """A time in this machine's time zone, without the date of today."""
    local = datetime.fromisoformat(moment).astimezone()
    return local.strftime("%H:%M:%S" if local.date().isoformat() == time.strftime("%Y-%m-%d") else "%Y-%m-%d %H:%M")
