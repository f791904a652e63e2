"""One reconciliation of one job: observe, decide, write the status, act."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from horovodjob.api.constants import Phase
from horovodjob_operator.controller.children.plan_executor import PlanExecutor
from horovodjob_operator.controller.children.quota_line import QuotaLine
from horovodjob_operator.controller.event_poster import EventPoster
from horovodjob_operator.controller.jobs.heartbeats import Heartbeats
from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.controller.jobs.job_store import FinishedJob
from horovodjob_operator.controller.jobs.status_writer import StatusWriter
from horovodjob_operator.controller.node_conditions import NodeConditions
from horovodjob_operator.controller.pod_events import PodEvents
from horovodjob_operator.controller.requeue import Requeue
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.plan import Plan, plan_for, plan_for_deleted_job
from horovodjob_operator.domain.status import next_status, status_with_held_quota
from horovodjob_operator.errors import AdmissionConflict, ClusterError, OperatorError
from horovodjob_operator.kube.pod_cache import Key, PodCache
from horovodjob_operator.kube.requests.reader import Reader
from horovodjob_operator.kube.requests.writer import Writer
from horovodjob_operator.kueue.queue import admitted_job, is_dispatched
from horovodjob_operator.kueue.workload_reconciler import WorkloadReconciler

# Without pods to wait for, the next phase follows at once.
FOLLOWED_PHASES = (Phase.TERMINATING, Phase.SUSPENDED)


# A creation that takes longer is reported while it lasts.
SLOW_SECONDS = 3


class Reconciler:
    """Reconciles a job. After an interruption at any write, the next reconciliation completes the work."""

    def __init__(
        self,
        pods: PodCache,
        writer: Writer,
        reader: Reader,
        clock: Callable[[], datetime],
        workload_reconciler: WorkloadReconciler,
        executor: PlanExecutor,
        quota_line: QuotaLine,
        *,
        reads_nodes: bool = False,
    ) -> None:
        self._pods, self._clock, self._workload_reconciler = pods, clock, workload_reconciler
        self.events, self.heartbeats = EventPoster(writer), Heartbeats()
        self._status_writer = StatusWriter(writer, self.events)
        self._pod_events = PodEvents(reader)
        self._node_conditions = NodeConditions(reader, is_allowed=reads_nodes)
        self._executor, self._quota_line = executor, quota_line

    async def delete_expired(self, key: Key, job: FinishedJob, now: datetime) -> Requeue:
        """Deletes a finished job whose time to live has passed. Raises ClusterError."""
        if job.delete_at and now >= job.delete_at:
            await self._executor.delete_job(key, job.uid)
            return Requeue()
        return Requeue(at=job.delete_at)

    async def report_error(self, state: JobState, error: Exception) -> None:
        """Writes an error, because of which the job is not reconciled, to its status. Raises ClusterError."""
        kind = "" if isinstance(error, OperatorError) else f"{type(error).__name__}: "
        await self._status_writer.write_error(state, f"{kind}{error}", self._clock())

    async def _release(self, state: JobState, now: datetime) -> Requeue:
        """Ends the pods of a deleted job that a finalizer of others keeps, when its program has ended, then its quota.

        Otherwise Kubernetes deletes the objects of the job, or orphans them if the user has asked for it. None must be
        created again. Raises ClusterError.
        """
        if state.is_collected or state.unreadable_status is not None or is_dispatched(state.job):
            return Requeue()
        queue = self._workload_reconciler.queue(state)
        context = JobContext(state.job, state.observed(self._pods.of_job(state.job.key).values(), queue=queue), now)
        due = Requeue()
        if context.observed.pods:
            status, _ = next_status(context)
            if status.phase is Phase.SUCCEEDED:
                _, due = await self._workload_reconciler.finish(state, context, status)
                await self._status_writer.write(state, status, now)
            await self._executor.delete(state.job, context.observed, plan_for_deleted_job(context))
        return due | await self._workload_reconciler.execute(state, context)

    async def reconcile(self, state: JobState) -> Requeue:
        """Reconciles a job once, and returns when to reconcile it again without an event. Raises ClusterError."""
        job, now = state.job, self._clock()
        if job.metadata.deletion_timestamp:
            return await self._release(state, now)
        if state.unreadable_status is not None:
            await self._status_writer.write_unreadable(state, now)
            return Requeue()
        if not self._workload_reconciler.is_known(job):
            return Requeue()
        self._quota_line.restore(state)
        has_scripts = self._pods.has_scripts(job.metadata.namespace)
        queue = self._workload_reconciler.queue(state)
        pods = self._pods.of_job(job.key).values()
        silence = self.heartbeats.silence(state, pods)
        observed = state.observed(pods, has_scripts=has_scripts, queue=queue, silence=silence)
        if is_dispatched(job):
            return await self._workload_reconciler.execute(state, JobContext(job, observed, now))
        job = admitted_job(job, queue)
        withheld = state.job.spec.worker.replicas - job.spec.worker.replicas
        context = JobContext(job, observed, now, withheld)
        status, outcome = next_status(context)
        if informed := await self._node_conditions.read(state, context, outcome):
            context = informed
            status, outcome = next_status(context)
        unfinished, due = await self._workload_reconciler.finish(state, context, status)
        status = status_with_held_quota(status, unfinished, now)
        # Before the plan: its deletions remove the evidence for the status.
        due |= Requeue(at=await self._status_writer.write(state, status, now))
        due |= Requeue(at=self.heartbeats.due(state, now))
        state.forget_deleted_pods(observed.deleted_pods)
        if outcome and outcome.failure:
            return Requeue(is_soon=True)  # The outcome is that of the previous attempt.
        if status.phase in FOLLOWED_PHASES and status.phase is not job.status.phase:
            due |= Requeue(is_soon=True)
        if status != job.status:
            context = replace(context, job=job.model_copy(update={"status": status}))
        plan = plan_for(context, outcome)
        due |= Requeue(at=plan.requeue_at)
        try:
            if plan.creates_pods and queue:
                plan = replace(plan, admission=await self._workload_reconciler.admission(context))
            due |= await self._execute(state, context, plan)
        except AdmissionConflict as error:
            return due | self._workload_reconciler.refuse_admission(state, error)
        if queue:
            due |= await self._workload_reconciler.execute(state, context)
            due |= await self._workload_reconciler.read_position(state, context)
        return due | await self._pod_events.read(state, context)

    async def _execute(self, state: JobState, context: JobContext, plan: Plan) -> Requeue:
        """Carries out the plan, and reports meanwhile that the API server takes long to create a pod."""
        if not plan.creates_pods or plan.dry_run:
            return await self._executor.execute(state, context, plan)
        execution = asyncio.ensure_future(self._executor.execute(state, context, plan))
        try:
            done, _ = await asyncio.wait({execution}, timeout=SLOW_SECONDS)
            state.is_creation_slow = not done
            if not done:
                slow = replace(context, observed=replace(context.observed, is_creation_slow=True))
                with contextlib.suppress(ClusterError):  # The next reconciliation writes it.
                    await self._status_writer.write(state, next_status(slow)[0], self._clock())
            return await execution
        finally:
            execution.cancel()
