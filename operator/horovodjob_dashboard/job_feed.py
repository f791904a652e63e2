"""The jobs of a cluster as a watch keeps them, for all pages of the dashboard."""

import asyncio
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from horovodjob_cli.cluster import kube
from horovodjob_cli.cluster.watch import SYNCED, changes
from horovodjob_cli.errors import translated
from horovodjob_dashboard.job_rows import JobRow, row

Object = dict[str, Any]
Key = tuple[str, str]


class JobFeed:
    """One watch, in a thread. Pages read `jobs` and `rows`, and wait for their next version.

    `namespace` limits it to one namespace; by default it has those of all namespaces, or of the namespace of the
    kubeconfig's context where the user may not list them all.
    """

    def __init__(self, namespace: str | None) -> None:
        self.namespace = namespace
        self.jobs: dict[Key, Object] = {}
        self.rows: dict[Key, JobRow] = {}
        self.error = ""
        """Why the watch ended, as a sentence."""
        self.is_synced = False
        self._versions: dict[Key, int] = {}
        self._version = 0
        self._changed = asyncio.Condition()

    def start(self) -> None:
        """Starts the watch; changes arrive in the running event loop."""
        loop = asyncio.get_running_loop()

        def deliver(change: str, job: Object) -> None:
            asyncio.run_coroutine_threadsafe(self._apply(change, job), loop).result()

        def watch() -> None:
            try:
                self._watch(deliver)
            except RuntimeError:
                return  # the event loop has ended
            except Exception as error:
                deliver("FAILED", {"message": str(translated(error) or error)})

        threading.Thread(target=copy_context().run, args=(watch,), name="jobs", daemon=True).start()

    def version(self, key: Key | None = None) -> int:
        """The version of a job, or of all jobs; it grows with each change."""
        return self._version if key is None else self._versions.get(key, 0)

    async def wait_for_change(self, since: int, key: Key | None = None) -> int:
        """The next version after `since`."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.version(key) > since)
        return self.version(key)

    def _watch(self, deliver: Callable[[str, Object], None]) -> None:
        from kubernetes.client import ApiException

        if self.namespace is None:
            try:
                for change in changes(kube.custom().list_cluster_custom_object, dict(kube.JOBS)):
                    deliver(*change)
            except ApiException as error:
                if error.status != 403 or self.is_synced:
                    raise
                self.namespace = kube.namespace(None)
        selection = {**kube.JOBS, "namespace": self.namespace}
        for change in changes(kube.custom().list_namespaced_custom_object, selection):
            deliver(*change)

    async def _apply(self, change: str, job: Object) -> None:
        async with self._changed:
            self._version += 1
            match change:
                case "FAILED":
                    self.error = job["message"]
                case _ if change == SYNCED:
                    self.is_synced, self.error = True, ""
                case _:
                    key = (job["metadata"]["namespace"], job["metadata"]["name"])
                    self._versions[key] = self._version
                    if change == "DELETED":
                        self.jobs.pop(key, None)
                        self.rows.pop(key, None)
                    else:
                        self.jobs[key], self.rows[key] = job, row(job)
            self._changed.notify_all()
