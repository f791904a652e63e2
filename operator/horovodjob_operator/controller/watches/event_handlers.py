"""Handlers of the events of jobs and pods: they update the state and the caches, and enqueue the jobs concerned."""

from collections.abc import Iterable, Mapping
from typing import Any

from horovodjob.api.job import Metadata
from horovodjob.api.managed_by import is_dispatched, is_managed_by_operator
from horovodjob_operator.controller.children.quota_line import QuotaLine
from horovodjob_operator.controller.jobs.job_state import JobState, apply_defaults, new_job_state
from horovodjob_operator.controller.jobs.job_store import JobStore, finished_job_from_raw
from horovodjob_operator.controller.watches.namespace_selection import NamespaceSelection
from horovodjob_operator.controller.work_queue import WorkQueue
from horovodjob_operator.domain.pods.pod_facts import OwnedPod
from horovodjob_operator.kube.pod_cache import Key, PodCache
from horovodjob_operator.kueue.queue import uses_queue
from horovodjob_operator.kueue.workload import OwnedWorkload
from horovodjob_operator.kueue.workload_cache import WorkloadCache
from horovodjob_operator.metrics import NAMESPACE_SERIES


class EventHandlers:
    """Handles the events and the lists of the watches."""

    def __init__(
        self,
        store: JobStore,
        pods: PodCache,
        work_queue: WorkQueue,
        namespaces: NamespaceSelection,
        workloads: WorkloadCache,
        quota_line: QuotaLine,
    ) -> None:
        self._store, self._pods, self._work_queue, self._namespaces = store, pods, work_queue, namespaces
        self._workloads, self._quota_line = workloads, quota_line

    def job_updated(self, raw: Mapping[str, Any]) -> None:
        """A job exists, or has changed."""
        metadata = Metadata.model_validate(raw["metadata"])
        key, uid = (metadata.namespace, metadata.name), metadata.uid
        known = self._store.find(key)
        is_outdated = known and known.uid == uid and int(metadata.resource_version) <= known.version
        # A list can have been read before a deletion.
        if key[0] not in self._namespaces or is_outdated or uid in self._store.deleted_uids:
            return
        state = known if isinstance(known, JobState) and known.uid == uid else None
        spec, finished = raw.get("spec") or {}, finished_job_from_raw(raw, metadata)
        if not is_managed_by_operator(spec):
            # The operator changes nothing, and the field is immutable. A job that MultiKueue dispatches to another
            # cluster needs its Workload here, and nothing else.
            if is_dispatched(spec) and finished is None:
                self._keep(raw, metadata, state)
            elif self._store.delete(key, uid):
                self._work_queue.forget(key)
            return
        NAMESPACE_SERIES.add(key[0])
        if finished is None or state or self._pods.has_running_pods(key, uid):
            self._keep(raw, metadata, state)
            return
        self._work_queue.forget(key)
        self._store.keep_finished(key, finished)
        if finished.delete_at:
            self._work_queue.enqueue_at(key, finished.delete_at)

    def _keep(self, raw: Mapping[str, Any], metadata: Metadata, state: JobState | None) -> None:
        newer = new_job_state(raw, metadata, self._namespaces.defaults(metadata.namespace))
        if state:
            state.update(newer)
        else:
            self._store.keep(newer)
        if uses_queue(newer.job):
            self._store.queue_used.set()
        self._quota_line.wake(metadata.namespace)  # A job that is suspended or ends no longer keeps room.
        self._work_queue.enqueue(newer.job.key)

    def job_deleted(self, raw: Mapping[str, Any]) -> None:
        """A job is deleted; Kubernetes deletes the objects that it owns."""
        key = (raw["metadata"]["namespace"], raw["metadata"]["name"])
        if self._store.delete(key, raw["metadata"]["uid"]):
            self._work_queue.forget(key)
            self._quota_line.wake(key[0])

    def finished_jobs_listed(self, uids: set[str], version: int, namespace: str) -> None:
        """The finished jobs of a namespace, or of all, are listed: jobs in no list are deleted."""
        for key in self._store.finished_jobs_listed(uids, version, namespace):
            self._work_queue.forget(key)

    def namespace_deselected(self, namespace: str) -> None:
        """The operator forgets the jobs of a namespace, and changes neither them nor their pods any more."""
        for key in self._store.forget_namespace(namespace):
            self._work_queue.forget(key)

    def defaults_changed(self, namespace: str) -> None:
        """The jobs of a namespace have other defaults, for the pods that are created from now on."""
        defaults = self._namespaces.defaults(namespace)
        for state in self._store.states_in(namespace):
            apply_defaults(state, defaults)
            self._work_queue.enqueue(state.job.key)

    def pod_updated(self, raw: Mapping[str, Any]) -> None:
        """A pod exists, or has changed; without the labels of its job it is lost for the job."""
        if lost := self._pods.without_labels(raw):
            self._owned_pod_deleted(lost)
        if owned := self._pods.update(raw):
            self._enqueue(owned.key)
            if not owned.pod.is_active:
                self._quota_line.wake(owned.key[0])

    def pod_deleted(self, raw: Mapping[str, Any]) -> None:
        """A pod is deleted."""
        if owned := self._pods.delete(raw):
            self._owned_pod_deleted(owned)

    def pods_listed(self, uids: set[str], version: int, namespace: str) -> None:
        """The pods of a namespace, or of all, are listed: pods that are not in the list are deleted."""
        is_first = not self._pods.has_listed(namespace)
        for owned in self._pods.delete_unlisted(uids, version, namespace):
            self._owned_pod_deleted(owned)
        if is_first:
            for state in self._store.states_in(namespace):
                self._work_queue.enqueue(state.job.key)

    def workload_updated(self, raw: Mapping[str, Any]) -> None:
        """A Workload exists, or has changed."""
        if owned := self._workloads.update(raw):
            self._enqueue(owned.key)

    def workload_deleted(self, raw: Mapping[str, Any]) -> None:
        """A Workload is deleted."""
        if owned := self._workloads.forget(raw["metadata"]["uid"]):
            self._enqueue(owned.key)

    def workloads_listed(self, uids: set[str], version: int, namespace: str) -> None:
        """The Workloads of a namespace, or of all, are listed: Workloads that are not in the list are deleted."""
        is_news = not self._workloads.has_listed(namespace) or bool(self._workloads.problem(namespace))
        self._workloads_gone(self._workloads.listed(uids, version, namespace), namespace, is_news=is_news)

    def workloads_unavailable(self, problem: str, namespace: str) -> None:
        """The Workloads of a namespace, or of all, cannot be watched."""
        is_news = not self._workloads.has_listed(namespace) or self._workloads.problem(namespace) != problem
        self._workloads_gone(self._workloads.unavailable(problem, namespace), namespace, is_news=is_news)

    def _workloads_gone(self, gone: Iterable[OwnedWorkload], namespace: str, *, is_news: bool) -> None:
        for owned in gone:
            self._enqueue(owned.key)
        if is_news:
            for state in self._store.states_in(namespace):
                if uses_queue(state.job):
                    self._work_queue.enqueue(state.job.key)

    def _owned_pod_deleted(self, owned: OwnedPod) -> None:
        self._quota_line.wake(owned.key[0])
        if state := self._store.states.get(owned.key):
            state.add_deleted_pod(owned.pod)
        self._enqueue(owned.key)

    def _enqueue(self, key: Key) -> None:
        if key in self._store.states:
            self._work_queue.enqueue(key)
