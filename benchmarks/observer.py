"""A minimal asynchronous client of an API server, and an observer of jobs: when each milestone was first seen."""

import asyncio
import json
import ssl
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Self

import aiohttp

Object = dict[str, Any]
# Labels that the jobs' pod templates have, for the observer and for kwok's stages.
JOB, ROLE, ENDS = "load-job", "load-role", "load-ends"
MERGE_PATCH = "application/merge-patch+json"
TEMPORARY_ERRORS = (500, 502, 503, 504)


class Client:
    """Plain dicts over one pool of connections; waits where the API server asks for that."""

    def __init__(self, server: str, tls: ssl.SSLContext, agent: str, *, token: str = "", connections: int = 64) -> None:
        headers = {"User-Agent": agent} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._session = aiohttp.ClientSession(
            server,
            connector=aiohttp.TCPConnector(ssl=tls, limit=connections),
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=2**22,  # one line of a watch holds one object
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def request(self, method: str, path: str, body: Object | None = None) -> Object:
        """The answer's object; a PATCH is a merge patch. Raises RuntimeError with the API server's words."""
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        headers = {"Content-Type": MERGE_PATCH if method == "PATCH" else "application/json"}
        while True:
            async with self._session.request(method, path, data=data, headers=headers) as response:
                text = await response.read()
                if await wait_to_retry(response):
                    continue
                if response.status >= 400:
                    raise RuntimeError(f"{method} {path}: {response.status} {text[:300].decode(errors='replace')}")
            answer: Object = json.loads(text)
            return answer

    async def version(self, path: str) -> str:
        """The version of a collection, to watch it from."""
        answer = await self.request("GET", f"{path}?limit=1")
        return str(answer["metadata"]["resourceVersion"])

    async def watch(self, path: str, version: str, take: Callable[[str, Object], None]) -> None:
        """Calls `take` with type and object of each event, until cancelled."""
        while True:
            query = f"watch=1&allowWatchBookmarks=1&resourceVersion={version}"
            async with self._session.get(f"{path}?{query}") as response:
                if await wait_to_retry(response):
                    continue
                response.raise_for_status()
                async for line in response.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise RuntimeError(f"watch of {path}: {event['object'].get('message')}")
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        take(event["type"], event["object"])


async def wait_to_retry(response: aiohttp.ClientResponse) -> bool:
    """Whether to repeat the request, after the time that the API server asks for.

    A request that was answered with 429 had no effect. After another temporary error, only a read can be repeated.
    """
    is_temporary = response.status == 429 or (response.method == "GET" and response.status in TEMPORARY_ERRORS)
    if is_temporary:
        await asyncio.sleep(float(response.headers.get("Retry-After", "1")))
    return is_temporary


class Milestone(StrEnum):
    """What can be seen of a job from outside."""

    LAUNCHER_CREATED = "launcher pod"
    PODS_CREATED = "all pods"
    WORKERS_RUN = "workers run"
    RUNNING = "Running"
    LAUNCHER_DONE = "launcher done"
    SUCCEEDED = "Succeeded"
    WORKERS_GONE = "workers gone"


class ObservedJob:
    """A job, and when each milestone was first seen, on the monotonic clock."""

    def __init__(self, name: str, workers: int) -> None:
        self.name, self.workers = name, workers
        self.submitted_at = 0.0
        self.moments: dict[Milestone, float] = {}
        self.addresses: dict[str, str] = {}
        self._pods: set[str] = set()
        self._gone = 0
        self._futures: dict[Milestone, asyncio.Future[None]] = {}

    def after(self, milestone: Milestone, since: Milestone | None = None) -> float:
        """Seconds from its submission, or from another milestone, to this one."""
        return self.moments[milestone] - (self.moments[since] if since else self.submitted_at)

    async def reach(self, *milestones: Milestone) -> None:
        """Waits until all of these have been seen."""
        for milestone in milestones:
            if milestone not in self.moments:
                future = self._futures.setdefault(milestone, asyncio.get_running_loop().create_future())
                await asyncio.shield(future)

    def pod(self, event: str, pod: Object) -> None:
        """A pod of the job was created, changed or deleted."""
        metadata, status = pod["metadata"], pod.get("status") or {}
        name, launcher = metadata["name"], metadata["labels"][ROLE] != "worker"
        if event == "DELETED":
            self._gone += not launcher
            if self._gone == self.workers:
                self._see(Milestone.WORKERS_GONE)
            return
        self._pods.add(name)
        if launcher:
            self._see(Milestone.LAUNCHER_CREATED)
            if status.get("phase") == "Succeeded":
                self._see(Milestone.LAUNCHER_DONE)
        elif status.get("podIP"):
            self.addresses[name] = status["podIP"]
            if len(self.addresses) == self.workers:
                self._see(Milestone.WORKERS_RUN)
        if len(self._pods) == self.workers + 1:
            self._see(Milestone.PODS_CREATED)

    def status(self, status: Object) -> None:
        """The job's own status has changed: a phase, or conditions."""
        true = {one["type"] for one in status.get("conditions") or () if one["status"] == "True"}
        for milestone in (Milestone.RUNNING, Milestone.SUCCEEDED):
            if status.get("phase", milestone if milestone in true else "") == milestone:
                self._see(milestone)

    def _see(self, milestone: Milestone) -> None:
        if milestone not in self.moments:
            self.moments[milestone] = time.monotonic()
            if future := self._futures.pop(milestone, None):
                future.set_result(None)


class Observer:
    """Watches pods and jobs of one namespace."""

    def __init__(self, client: Client, namespace: str, jobs_path: str) -> None:
        self._client = client
        self._paths = (f"/api/v1/namespaces/{namespace}/pods", jobs_path)
        self.jobs: dict[str, ObservedJob] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for path, take in zip(self._paths, (self._pod, self._job), strict=True):
            version = await self._client.version(path)
            self._tasks.append(asyncio.create_task(self._client.watch(path, version, take)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def add(self, name: str, workers: int) -> ObservedJob:
        """A job that is submitted now."""
        job = self.jobs[name] = ObservedJob(name, workers)
        job.submitted_at = time.monotonic()
        return job

    def check(self) -> None:
        """Raises what has ended a watch."""
        for task in self._tasks:
            if task.done():
                task.result()

    def _pod(self, event: str, pod: Object) -> None:
        job = self.jobs.get((pod["metadata"].get("labels") or {}).get(JOB, ""))
        if job:
            job.pod(event, pod)

    def _job(self, _: str, body: Object) -> None:
        job = self.jobs.get(body["metadata"]["name"])
        if job:
            job.status(body.get("status") or {})
