"""The page of a job, and its buttons."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from aiohttp import web

from horovodjob.client.cluster import kube
from horovodjob.client.errors import ClientError, NotFound, translated
from horovodjob.client.jobs import other_cluster
from horovodjob.client.jobs.job_times import current_time, job_times
from horovodjob_dashboard import job_details
from horovodjob_dashboard.curves import charts_of_a_job
from horovodjob_dashboard.job_rows import row
from horovodjob_dashboard.operator_state import OperatorState
from horovodjob_dashboard.pages import VIEWER, Pages

JOB = "/jobs/{namespace}/{name}"
ACTIONS = {
    "suspend": {"runPolicy": {"suspend": True}},
    "resume": {"runPolicy": {"suspend": False}},
    "terminate": {"runPolicy": {"terminate": True}},
}
log = logging.getLogger(__name__)


class JobView:
    """A job from the feed of the viewer; its pods and events, and all changes, are requests of the viewer's own."""

    def __init__(self, pages: Pages, operator: OperatorState) -> None:
        self._pages, self._operator = pages, operator

    def routes(self) -> list[web.RouteDef]:
        """The addresses of a job."""
        return [
            web.get(JOB, self.job),
            web.get(f"{JOB}/state", self.state),
            web.post(f"{JOB}/{{action:suspend|resume|terminate}}", self.act),
        ]

    async def job(self, request: web.Request) -> web.Response:
        """The page of a job."""
        return self._pages.page(request, "job.html", await self._details(request))

    async def state(self, request: web.Request) -> web.Response:
        """The changing part of the page of a job."""
        return self._pages.page(request, "job_state.html", await self._details(request))

    async def act(self, request: web.Request) -> web.StreamResponse:
        """Suspends, resumes or terminates the job that the page showed, by its UID."""
        form = await request.post()
        namespace, name, action = (request.match_info[key] for key in ("namespace", "name", "action"))
        job = {"metadata": {"namespace": namespace, "name": name, "uid": str(form.get("uid", ""))}}
        await asyncio.to_thread(kube.patch_job, job, ACTIONS[action])
        log.info("%s/%s: %s by %s", namespace, name, action, request[VIEWER].user)
        return web.HTTPSeeOther(f"{self._pages.root}/jobs/{namespace}/{name}")

    async def _details(self, request: web.Request) -> dict[str, Any]:
        key = (request.match_info["namespace"], request.match_info["name"])
        feed = await request[VIEWER].feed(key[0])
        version = feed.version(key)
        job = feed.job(key) or await asyncio.to_thread(kube.find_job, key[1], key[0])
        if job is None:
            raise NotFound(f"job {key[1]} does not exist in namespace {key[0]}; it may have been deleted")
        (pods, pods_error), (events, events_error), problem = await asyncio.gather(
            _or_error(other_cluster.pods, job),
            _or_error(kube.read_events, job),
            self._operator.problem(request[VIEWER], [job]),
        )
        return {
            "row": row(job),
            "uid": job["metadata"]["uid"],
            "workers_ready": (job.get("status") or {}).get("workersReady", ""),
            "is_suspended": bool((job["spec"].get("runPolicy") or {}).get("suspend")),
            "version": version,
            "operator_problem": problem,
            "pods": [job_details.pod_row(pod) for pod in pods],
            "pods_error": pods_error,
            "attempts": job_details.attempts(job, events),
            "facts": job_details.progress_facts(job),
            "conditions": job_details.conditions(job),
            "events": job_details.event_rows(events),
            "events_error": events_error,
            "charts": charts_of_a_job(job),
            "gpu_hours": job_times(job, current_time())["gpuHours"],
            "has_log_file": bool(job["spec"].get("logs")),
            "manifest": job_details.manifest(job),
            "commands": job_details.commands(job),
            "run_again": job_details.run_again(job),
            "link_fields": job_details.link_fields(job),
        }


async def _or_error(function: Callable[[Any], Any], job: Any) -> tuple[list[Any], str]:
    """What the function returns, and an empty sentence; or nothing, and why the API server refused it."""
    try:
        return await asyncio.to_thread(function, job), ""
    except Exception as error:
        found = error if isinstance(error, ClientError) else translated(error)
        if found is None:
            raise
        return [], str(found)
