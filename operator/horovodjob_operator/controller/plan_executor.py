"""Carries out the plan for a job."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from horovodjob.api.constants import Reason, Role
from horovodjob.api.job import HorovodJob
from horovodjob_operator.controller.dry_run import DryRun
from horovodjob_operator.controller.job_log import log_effect
from horovodjob_operator.controller.job_state import JobState
from horovodjob_operator.controller.pod_creation import PodCreation
from horovodjob_operator.controller.refusals import PREFLIGHT, RefusedObject, refuse, refuse_object
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.messages import count_text
from horovodjob_operator.domain.observed import Observed
from horovodjob_operator.domain.plan import Plan
from horovodjob_operator.domain.pod import Pod
from horovodjob_operator.errors import Conflict, Gone, InvalidJob
from horovodjob_operator.kube.cache import PodCache
from horovodjob_operator.kube.preflight import Preflight
from horovodjob_operator.kube.reader import Reader
from horovodjob_operator.kube.writer import Writer

# Until then, the scheduler has found nodes for some of the pods that it has.
CREATION_PAUSE_SECONDS = 0.05
MAX_CONCURRENT_STOPS = 32


class PlanExecutor:
    """Creates, changes and deletes objects. Each effect is idempotent."""

    def __init__(
        self,
        pods: PodCache,
        writer: Writer,
        reader: Reader,
        clock: Callable[[], datetime],
        progress_url: str,
        preflight: Preflight | None,
    ) -> None:
        self._pods, self._writer, self._clock, self._preflight = pods, writer, clock, preflight
        self._creation = PodCreation(pods, writer, reader, clock, progress_url)
        self._dry_run = DryRun(writer, self._creation, clock, preflight)

    async def execute(self, state: JobState, context: JobContext, plan: Plan) -> datetime | None:
        """Carries out the plan, and returns when to reconcile the job again. Raises ClusterError."""
        job, observed = state.job, context.observed
        if plan.delete_job:
            await self._writer.delete_job(job)
            log_effect(job, "deleted the job: runPolicy.ttlSecondsAfterFinished has passed")
            return None
        await self._delete(state, observed, plan)
        if plan.delete_secrets:
            await self._creation.secrets.delete(state, observed)
        if plan.recheck_refusal:
            return await self._dry_run.recheck(state, context.now)
        if plan.creates_pods and (retry_at := await self._create(state, context, plan)):
            return retry_at
        if plan.publish_hosts and observed.launcher:
            await self._writer.publish_hosts(job, plan.hosts)
            self._pods.change(job.key, [observed.launcher], hosts=plan.hosts)
            hosts = count_text(plan.hosts.count("\n"), "host")
            log_effect(job, f"published {hosts} to the launcher of attempt {job.status.attempt}")
        # New pods and hosts count at once, because their events may bring nothing that is not known here.
        return context.now if plan.creates_pods or plan.publish_hosts else None

    async def _create(self, state: JobState, context: JobContext, plan: Plan) -> datetime | None:
        """Creates pods; if that is not possible, returns when to reconcile the job again."""
        job = state.job
        if self._preflight and plan.create_launcher and (problem := await self._preflight.problem(job)):
            return refuse(state, PREFLIGHT, *problem, self._clock())
        try:
            is_complete = await self._creation.create(state, context.observed, plan)
        except InvalidJob as error:
            return refuse(state, "", Reason.INVALID_SPEC, str(error), context.now)
        except RefusedObject as error:
            return refuse_object(state, error, context.now)
        state.accept()
        return None if is_complete else self._clock() + timedelta(seconds=CREATION_PAUSE_SECONDS)

    async def _delete(self, state: JobState, observed: Observed, plan: Plan) -> None:
        job = state.job
        for kind in plan.delete_pod_groups:  # Before the pods, from which the next reconciliation would know the group.
            await self._creation.pod_groups.delete(state, kind)
        if plan.delete_all_pods or plan.delete_workers:
            role = None if plan.delete_all_pods else Role.WORKER
            await self._writer.delete_pods(job, role, plan.keep_workers)
            deleted = (pod for pod in observed.pods if role in (None, pod.role) and pod.index not in plan.keep_workers)
            self._pods.change(job.key, deleted, is_terminating=True)
            kept = f"; {count_text(len(plan.keep_workers), 'worker')} had ended" if plan.keep_workers else ""
            log_effect(job, "deleted the pods" if role is None else f"deleted the workers{kept}")
        if plan.delete_unscheduled_pods:
            await self._writer.delete_pods(job, unscheduled=True)
            log_effect(job, "deleted the pods without a node")
        for pod in observed.pods:
            if pod.name in plan.delete_pods:
                await self._delete_pod(job, pod)
        if plan.stop_pods:
            await self._stop(job, [pod for pod in observed.pods if pod.name in plan.stop_pods])

    async def _stop(self, job: HorovodJob, pods: Sequence[Pod]) -> None:
        waiting = iter(pods)

        async def stop_pods() -> None:
            for pod in waiting:
                with contextlib.suppress(Gone):  # The watch reports that it is deleted.
                    await self._writer.stop_pod(job.metadata.namespace, pod.name)
                    self._pods.change(job.key, [pod], is_stopping=True)

        results = await asyncio.gather(*(stop_pods() for _ in pods[:MAX_CONCURRENT_STOPS]), return_exceptions=True)
        for error in results:
            if error:
                raise error
        subject = "the launcher" if [pod.role for pod in pods] == [Role.LAUNCHER] else count_text(len(pods), "pod")
        log_effect(job, f"stopped {subject} and kept the log")

    async def _delete_pod(self, job: HorovodJob, pod: Pod) -> None:
        try:
            await self._writer.delete_pod(job.metadata.namespace, pod.name, pod.uid)
            log_effect(job, f"deleted pod {pod.name} of attempt {pod.attempt}")
        except (Gone, Conflict):
            pass
        self._pods.change(job.key, [pod], is_terminating=True)
