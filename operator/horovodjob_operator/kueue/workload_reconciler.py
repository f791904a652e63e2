"""The Workloads of jobs that wait for a queue of Kueue: observes them, and carries out what the domain decides."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime, timedelta
from typing import Any
from weakref import WeakKeyDictionary

from horovodjob.api.constants import ANNOTATION_PRIORITY_CLASS, LABEL_JOB, Phase, Reason
from horovodjob.api.job import HorovodJob
from horovodjob.api.status import HorovodJobStatus
from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.controller.requeue import Requeue
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.pods.observed import PASSING_REASONS, keeps_trying
from horovodjob_operator.domain.pods.pod_facts import owner_uid
from horovodjob_operator.domain.resources.parts.metadata import owner_reference
from horovodjob_operator.errors import (
    AdmissionConflict,
    AlreadyExists,
    Conflict,
    Gone,
    InvalidJob,
    NotServed,
    Refused,
    Unavailable,
)
from horovodjob_operator.kube.requests.retries import retry_delay_seconds
from horovodjob_operator.kueue.kueue_api import KueueApi
from horovodjob_operator.kueue.pod_admission import Admission
from horovodjob_operator.kueue.queue import (
    Queue,
    QueueProblem,
    prebuilt_workload,
    queue_name,
    queue_of,
    uses_queue,
)
from horovodjob_operator.kueue.workload import Workload
from horovodjob_operator.kueue.workload_cache import WorkloadCache
from horovodjob_operator.kueue.workload_manifest import (
    JOB_UID_LABEL,
    KUEUE_CLASS,
    job_workload,
    priority_reference,
    workload_name,
)
from horovodjob_operator.kueue.workload_plan import WorkloadPlan, finished_status, workload_plan
from horovodjob_operator.logs import log_effect, log_warning

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 5, 300
# While the API server or Kueue's webhook is away: no event reports its return.
FIRST_FAILURE_SECONDS, LONGEST_FAILURE_SECONDS = 0.5, 30
# A request that takes longer waits for a Kueue that may never answer: the job does not wait for it.
SLOW_SECONDS = 3
# The positions of all jobs of a queue are one request.
POSITION_SECONDS = 30
# How long positions are not requested from a cluster that does not report them.
NO_POSITION_SECONDS = 300
# Flavors seldom change, and many jobs of a queue start at the same time.
FLAVOR_SECONDS = 30


class WorkloadReconciler:
    """Creates, changes, finishes and deletes the Workloads of jobs."""

    def __init__(self, workloads: WorkloadCache, api: KueueApi) -> None:
        self._workloads, self._api = workloads, api
        self._flavors: dict[str, tuple[datetime, Mapping[str, Any]]] = {}
        self._positions: dict[tuple[str, str], tuple[datetime, dict[str, int]]] = {}
        """When the positions of a queue are to be read again, and the positions by Workload."""
        self._slow_writes: WeakKeyDictionary[JobState, asyncio.Task[bool]] = WeakKeyDictionary()
        """Writes that are not answered yet."""

    def is_known(self, job: HorovodJob) -> bool:
        """Whether a job with a queue can be reconciled; if not, it is enqueued when the Workloads are listed.

        The Workload of a job that has ended is finished, and no longer watched.
        """
        return not uses_queue(job) or job.status.is_over or self._workloads.has_listed(job.metadata.namespace)

    def queue(self, state: JobState) -> Queue | None:
        """The queue of the job, with what is known of its Workload."""
        job = state.job
        workload = self._workloads.of_job(job.metadata.uid)
        if not uses_queue(job) and workload is None:
            return None
        problem = state.queue_problem
        if unavailable := self._workloads.problem(job.metadata.namespace):
            problem = QueueProblem(Reason.QUEUE_UNAVAILABLE, unavailable)
        return Queue(queue_of(job, workload), workload, state.queue_position, problem)

    async def finish(self, state: JobState, context: JobContext, status: HorovodJobStatus) -> tuple[str, Requeue]:
        """Finishes the Workload of a job that ends, and returns why that is not possible now, and when to try again.

        It comes before the last status, so a new process need not look for a Workload of a job that has ended, unless
        the status says so. Neither the status nor the pods wait for it.
        """
        job, queue = context.job, context.observed.queue
        workload = queue.workload if queue else None
        if workload is None or workload.is_finished or not status.is_finished or job.status.is_over:
            return "", Requeue()
        try:
            await self._answer(state, lambda: self._finish(job, workload, finished_status(status, context.now)))
        except (Refused, Unavailable) as error:
            log_warning(job, f"Workload {workload.name} cannot be finished, and keeps its quota: {error}")
            return str(error), Requeue(at=self._retry_at(state, error, context.now))
        return "", Requeue()

    async def _finish(self, job: HorovodJob, workload: Workload, body: Mapping[str, Any]) -> bool:
        try:
            self._workloads.update(await self._api.apply_status(job.metadata.namespace, workload, body))
            log_effect(job, f"finished Workload {workload.name}")
        except (Gone, Conflict):
            self._workloads.forget(workload.uid)
        return True

    async def _answer(self, state: JobState, write: Callable[[], Coroutine[Any, Any, bool]]) -> bool:
        """What a write returns. Raises its error, and Unavailable if it has no answer yet: then it continues."""
        task = self._slow_writes.pop(state, None)
        if task and task.done():
            task.result()  # Raises its error, which is still news.
            task = None
        if task is None:
            task = asyncio.ensure_future(write())
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # Nobody may be left to read it.
            await asyncio.wait({task}, timeout=SLOW_SECONDS)
        if not task.done():
            self._slow_writes[state] = task
            raise Unavailable(f"Kueue's webhook, or the API server, has not answered within {SLOW_SECONDS} s")
        return task.result()

    async def admission(self, context: JobContext) -> Admission | None:
        """What the queue adds to the pods that are created. Raises ClusterError."""
        workload = context.queue.workload if context.queue else None
        if workload is None:
            return None
        flavors = {name: await self._flavor(name, context.now) for name in workload.flavors}
        return Admission(workload, flavors)

    def refuse_admission(self, state: JobState, error: AdmissionConflict) -> Requeue:
        """Records that the admission contradicts the job, which fails."""
        state.queue_problem = QueueProblem(Reason.ADMISSION_CONFLICT, str(error), is_final=True)
        return Requeue(is_soon=True)

    async def execute(self, state: JobState, context: JobContext) -> Requeue:
        """Carries out what has to be done about the Workload, and returns when to do more. Raises ClusterError."""
        job, queue, now = context.job, context.observed.queue, context.now
        if queue is None or self._workloads.problem(job.metadata.namespace):
            return Requeue()
        problem = state.queue_problem
        try:
            plan = workload_plan(context)
            is_request = plan.create or plan.request or plan.priority
            if is_request and problem and problem.retry_at and now < problem.retry_at:
                return Requeue(at=problem.retry_at)
            if plan.delete or plan == WorkloadPlan():  # No webhook is called.
                changed = await self._write(state.job, queue.workload, plan, now)
            else:
                changed = await self._answer(state, lambda: self._write(state.job, queue.workload, plan, now))
        except InvalidJob as error:
            return self._refuse(state, context, Refused(str(error)))
        except NotServed:
            return Requeue()  # The watch will report that the kind has gone.
        except (Refused, Unavailable) as error:
            # No error ends this reconciliation: what it has left is tried again, and events of the job do not wait.
            if is_request:
                return self._refuse(state, context, error)
            log_warning(state.job, f"the Workload cannot be changed: {error}")
            return Requeue(at=self._retry_at(state, error, now))
        if is_request or changed or (problem and not problem.is_final):
            state.queue_refusals = 0
        if is_request or (problem and not problem.is_final):
            state.queue_problem = None
        return Requeue(is_soon=changed)

    async def read_position(self, state: JobState, context: JobContext) -> Requeue:
        """Reads the position of a waiting job at times, and returns when the next reading is due."""
        queue = context.queue
        workload = queue.workload if queue else None
        # Kueue writes no condition to a Workload that waits behind another one with the same requests.
        is_waiting = context.job.status.phase is Phase.QUEUED
        if workload is None or workload.has("QuotaReserved") or not workload.is_active or not is_waiting:
            state.queue_position = None
            return Requeue()
        namespace, now = context.job.metadata.namespace, context.now
        key = namespace, workload.queue_name
        due, positions = self._positions.get(key, (now, {}))
        if due <= now:
            due = now + timedelta(seconds=POSITION_SECONDS)
            self._positions[key] = due, positions  # Other jobs must not request them meanwhile.
            try:
                async with asyncio.timeout(SLOW_SECONDS):
                    positions = await self._api.positions(*key)
            except (NotServed, Refused):
                due, positions = now + timedelta(seconds=NO_POSITION_SECONDS), {}
            except (Unavailable, Gone, TimeoutError):
                # Kueue starts, hangs, or does not know a new queue yet: the next reading is not later than usual.
                positions = {}
            self._positions[key] = due, positions
        before, state.queue_position = state.queue_position, positions.get(workload.name)
        return Requeue(at=due, is_soon=state.queue_position != before)

    async def _write(self, job: HorovodJob, workload: Workload | None, plan: WorkloadPlan, now: datetime) -> bool:
        """Whether anything was written. Raises ClusterError."""
        namespace = job.metadata.namespace
        if plan.create:
            try:
                return await self._create(job)
            except NotServed:
                raise
            except (Gone, Conflict):
                return True  # No watch reports changes of a Workload that does not belong to the job yet.
        if workload is None:
            return False
        try:
            if plan.delete:
                await self._api.delete(namespace, workload)
                self._workloads.forget(workload.uid)
            elif plan.request or plan.priority:
                patch = await self._request_patch(job, workload, only_priority=plan.priority)
                self._workloads.update(await self._api.patch(namespace, workload.name, patch))
            elif plan.status is not None:
                self._workloads.update(await self._api.replace_status(namespace, workload, plan.status))
            else:
                return False
        except (Gone, Conflict):
            return False  # The watch reports the new version.
        log_effect(job, plan.effect)
        return True

    async def _create(self, job: HorovodJob) -> bool:
        """Creates the Workload of the job, or adopts the one that MultiKueue has created."""
        if name := prebuilt_workload(job):
            return await self._adopt(job, name)
        body = job_workload(job, await self._priority(job))
        try:
            created = await self._api.create(body)
        except AlreadyExists:
            created = await self._api.workload(job.metadata.namespace, workload_name(job))
            if owner_uid(created["metadata"]) != job.metadata.uid:
                raise Refused(
                    f"Workload {workload_name(job)} exists and does not belong to this job: delete it"
                ) from None
        self._workloads.update(created)
        log_effect(job, f"created Workload {created['metadata']['name']} for queue {queue_name(job)}")
        return True

    async def _adopt(self, job: HorovodJob, name: str) -> bool:
        try:
            found = await self._api.workload(job.metadata.namespace, name)
        except NotServed:
            raise
        except Gone as error:
            raise Refused(f"Workload {name}, which MultiKueue creates for this job, does not exist yet") from error
        metadata = found["metadata"]
        owner = owner_uid(metadata)
        if owner not in ("", job.metadata.uid):
            raise Refused(f"Workload {name}, which MultiKueue has created for this job, belongs to another job")
        owners = [*(metadata.get("ownerReferences") or ()), *([] if owner else [owner_reference(job)])]
        labels = {LABEL_JOB: job.metadata.name, JOB_UID_LABEL: job.metadata.uid}
        changes = {"resourceVersion": metadata["resourceVersion"], "labels": labels, "ownerReferences": owners}
        self._workloads.update(await self._api.patch(job.metadata.namespace, name, {"metadata": changes}))
        log_effect(job, f"adopted Workload {name} of MultiKueue")
        return True

    async def _request_patch(self, job: HorovodJob, workload: Workload, *, only_priority: bool) -> dict[str, Any]:
        """The change of the Workload to what the job requests now. Raises Refused."""
        body = job_workload(job, await self._priority(job))
        metadata = {"uid": workload.uid, "resourceVersion": str(workload.version)}
        annotations: dict[str, str | None] = {ANNOTATION_PRIORITY_CLASS: None}
        if only_priority:
            spec = {"priority": body["spec"]["priority"]}
            reference = priority_reference(job)
            # While quota is reserved, Kueue lets one WorkloadPriorityClass replace another, and no other reference.
            if reference and workload.priority_class and workload.priority_class[0] == reference["kind"] == KUEUE_CLASS:
                spec["priorityClassRef"] = reference
            else:
                annotations[ANNOTATION_PRIORITY_CLASS] = reference["name"] if reference else ""
            return {"metadata": {**metadata, "annotations": annotations}, "spec": spec}
        # `active` belongs to the administrator.
        removed = dict.fromkeys(("priorityClassRef", "maximumExecutionTimeSeconds"))
        spec = removed | {key: value for key, value in body["spec"].items() if key != "active"}
        metadata_changes = {**metadata, "labels": body["metadata"]["labels"], "annotations": annotations}
        return {"metadata": metadata_changes, "spec": spec}

    async def _priority(self, job: HorovodJob) -> int:
        reference = priority_reference(job)
        if reference is None:
            return 0
        try:
            return await self._api.priority(reference)
        except Gone as error:
            kind, name = reference["kind"], reference["name"]
            raise Refused(f"{kind} {name} does not exist: create it, or name another one") from error

    async def _flavor(self, name: str, now: datetime) -> Mapping[str, Any]:
        until, flavor = self._flavors.get(name, (now, {}))
        if now < until:
            return flavor
        try:
            flavor = await self._api.flavor(name)
        except (Gone, Refused) as error:
            raise Unavailable(f"ResourceFlavor {name} of the admission cannot be read: {error}") from error
        self._flavors[name] = now + timedelta(seconds=FLAVOR_SECONDS), flavor
        return flavor

    def _refuse(self, state: JobState, context: JobContext, error: Refused | Unavailable) -> Requeue:
        """Records why the Workload cannot be created or changed; this is tried again."""
        reason, message = Reason.CREATION_FAILED, keeps_trying(str(error))
        if isinstance(error, Refused):
            reason, message = error.reason, str(error)
        is_news = state.queue_problem is None or state.queue_problem.message != message
        if is_news:
            log_warning(state.job, message)
        retry_at = self._retry_at(state, error, context.now)
        is_stalled = reason not in PASSING_REASONS
        state.queue_problem = QueueProblem(reason, message, is_stalled=is_stalled, retry_at=retry_at)
        return Requeue(at=retry_at, is_soon=is_news)

    def _retry_at(self, state: JobState, error: Refused | Unavailable, now: datetime) -> datetime:
        """When a write to the Workload that failed is tried again."""
        first, longest = float(FIRST_RETRY_SECONDS), LONGEST_RETRY_SECONDS
        if isinstance(error, Unavailable):
            first, longest = FIRST_FAILURE_SECONDS, LONGEST_FAILURE_SECONDS
        delay = retry_delay_seconds(state.queue_refusals, first=first, longest=longest)
        state.queue_refusals += 1
        return now + timedelta(seconds=delay)
