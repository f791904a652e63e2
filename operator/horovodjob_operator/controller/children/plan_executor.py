"""Carries out the plan for a job."""

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from horovodjob.api.constants import Gang, Reason, Role
from horovodjob.api.job import HorovodJob
from horovodjob_operator.controller.children.object_creation import ObjectCreation, RefusedObject, gather
from horovodjob_operator.controller.children.pod_groups import PodGroups
from horovodjob_operator.controller.children.quota_line import QuotaLine
from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.controller.requeue import Requeue
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.messages import count_text
from horovodjob_operator.domain.plan import Plan
from horovodjob_operator.domain.pods.attempt_pods import missing_workers
from horovodjob_operator.domain.pods.observed import PASSING_REASONS, Observed, Refusal, keeps_trying
from horovodjob_operator.domain.pods.pod import Pod
from horovodjob_operator.domain.resource_quota import PodUsage
from horovodjob_operator.errors import Conflict, Gone, InvalidJob, Unavailable
from horovodjob_operator.kube.pod_cache import Key, PodCache
from horovodjob_operator.kube.preflight import Preflight
from horovodjob_operator.kube.requests.reader import Reader
from horovodjob_operator.kube.requests.retries import retry_delay_seconds
from horovodjob_operator.kube.requests.writer import Writer
from horovodjob_operator.logs import log, log_effect
from horovodjob_operator.metrics import RECONCILE_ERRORS

NEW_PODS_SECONDS = 1
# A reconciliation stops creating workers after this time, so that the next one shows in the status how many exist.
CREATION_SECONDS = 5
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 5, 300
# After a failure that says nothing about the job, such as while the API server restarts.
FIRST_FAILURE_SECONDS, LONGEST_FAILURE_SECONDS, FAILURE_JITTER = 0.5, 30, 0.3
# How often the optional objects of a running job are checked: a resync of all jobs takes as long by default.
OBJECTS_SECONDS = 300
MAX_CONCURRENT_STOPS = 32
FAILURES = (Reason.OPERATOR_FORBIDDEN, Reason.CREATION_FAILED)


class PlanExecutor:
    """Creates, changes and deletes objects. Each effect is idempotent."""

    def __init__(
        self,
        pods: PodCache,
        writer: Writer,
        reader: Reader,
        clock: Callable[[], datetime],
        quota_line: QuotaLine,
        progress_url: str = "",
        preflight: Preflight | None = None,
    ) -> None:
        self._pods, self._writer, self._pod_groups = pods, writer, PodGroups(writer, reader)
        self._creation = ObjectCreation(pods, writer, reader, self._pod_groups, progress_url)
        self._clock, self._preflight, self._quota_line = clock, preflight, quota_line

    async def execute(self, state: JobState, context: JobContext, plan: Plan) -> Requeue:
        """Carries out the plan, and returns when to reconcile the job again. Raises ClusterError."""
        job, observed = context.job, context.observed
        if plan.delete_job:
            await self.delete_job(job.key, job.metadata.uid)
            return Requeue()
        await self.delete(job, observed, plan)
        if plan.creates_pods or plan.create_secrets:
            return await self._create(state, context, plan)
        if state.refusal and self._is_over(state.refusal, context):
            state.refusal = None  # The request that failed had its effect: nothing is missing any more.
            return Requeue(is_soon=True)
        if plan.publish_hosts and observed.launcher:
            await self._writer.publish_hosts(job, plan.hosts)
            self._pods.change(job.key, [observed.launcher], hosts=plan.hosts)
            hosts = count_text(plan.hosts.count("\n"), "host")
            log_effect(job, f"published {hosts} to the launcher of attempt {job.status.attempt}")
            if context.is_resizable:
                return Requeue(is_soon=True)  # Workers that are no hosts any more can be deleted.
        await self._check_objects(state, context)
        return Requeue()

    def _is_over(self, refusal: Refusal, context: JobContext) -> bool:
        if context.is_resizable:
            return not missing_workers(context)
        return refusal.keeps_pods and not context.next_time(refusal.retry_at)

    async def delete_job(self, key: Key, uid: str) -> None:
        """Deletes the HorovodJob; Kubernetes deletes what it owns. Raises ClusterError."""
        await self._writer.delete_job(*key, uid)
        log.info("%s/%s deleted the job: runPolicy.ttlSecondsAfterFinished has passed", *key)

    async def _create(self, state: JobState, context: JobContext, plan: Plan) -> Requeue:
        """Creates the objects of the plan, or finds out without an effect whether this is possible."""
        job, limit, is_complete = context.job, plan.max_waiting_pods, False
        until = math.inf

        def may_continue() -> bool:
            nonlocal until
            until = min(until, time.monotonic() + CREATION_SECONDS)
            has_priority = limit is None or not self._pods.are_ahead(job.key, limit)
            return has_priority and time.monotonic() < until and not state.has_changed(job)

        problem = await self._preflight.problem(job) if self._preflight and plan.create_launcher else None
        if plan.create_launcher and state.defaults_error:
            problem = Reason.INVALID_SPEC, state.defaults_error
        try:
            if problem:
                return self._refuse(state, *problem)
            granted = state.granted_workers if context.is_resizable else None
            is_partial = granted is not None and granted < len(plan.create_workers)
            plan = replace(plan, create_workers=plan.create_workers[:granted])
            if self._quota_line.must_wait(state, context):
                return self._refuse(
                    state, Reason.QUOTA_EXCEEDED, "other jobs of the namespace wait for room in a quota"
                )
            if plan.dry_run:
                usage = await self._creation.dry_run(context, plan)
                if self._is_news(state, usage):
                    return self._refuse(
                        state, Reason.QUOTA_EXCEEDED, "what the pods count in a quota is known only now"
                    )
            else:
                is_complete = await self._creation.create(context, plan, may_continue)
        except InvalidJob as error:
            return self._refuse(state, Reason.INVALID_SPEC, str(error))
        except RefusedObject as error:
            keeps_group = error.reason is Reason.NAME_CONFLICT or error.reason in FAILURES
            if job.spec.scheduling.gang is not Gang.NONE and not keeps_group:
                await self._delete_pod_group(job, job.spec.scheduling.gang)
            return self._refuse(state, error.reason, str(error))
        except Unavailable as error:
            RECONCILE_ERRORS.inc()
            return self._refuse(state, Reason.CREATION_FAILED, str(error))
        if is_partial and is_complete and state.refusal:
            state.refusal = replace(state.refusal, waits_in_line=True)
            state.end_turn()
            self._quota_line.join(job.metadata.namespace)
            return Requeue(at=self._clock() + timedelta(seconds=NEW_PODS_SECONDS))
        state.refusal = None
        if not is_complete:
            return Requeue(is_soon=True)
        state.refusal_count, state.refused_since = 0, None
        state.end_turn()
        if plan.create_launcher:
            state.objects_checked_at = self._clock()
        # The pods are counted, and deadlines run from their creation, although their events may report nothing new.
        return Requeue(at=self._clock() + timedelta(seconds=NEW_PODS_SECONDS))

    def _is_news(self, state: JobState, usage: Mapping[Role, PodUsage]) -> bool:
        """Whether the pods of a job that waits count something else in a quota than the decision about it assumed."""
        if state.refusal is None or state.refusal.reason is not Reason.QUOTA_EXCEEDED:
            return False
        before = self._quota_line.usage(state)
        state.pod_usage = {**before, **usage}
        return state.pod_usage != before

    def _refuse(self, state: JobState, reason: Reason, message: str) -> Requeue:
        """Records that an object of the job cannot be created."""
        now, count = self._clock(), state.refusal_count
        state.refused_since = state.refused_since or now
        # Pods that wait for others occupy nodes, so they are kept no longer than for the scheduler.
        patience = timedelta(seconds=state.job.spec.scheduling.timeout_seconds)
        keeps_pods = reason in FAILURES and now < state.refused_since + patience
        delay = retry_delay_seconds(count, first=FIRST_RETRY_SECONDS, longest=LONGEST_RETRY_SECONDS)
        if reason in FAILURES:
            longest = LONGEST_FAILURE_SECONDS
            delay = retry_delay_seconds(count, first=FIRST_FAILURE_SECONDS, longest=longest, jitter=FAILURE_JITTER)
        if reason in PASSING_REASONS:
            message = keeps_trying(message)
        if state.refusal is None or state.refusal.message != message:
            log_effect(state.job, f"{reason}: {message}")
        state.refusal_count += 1
        state.end_turn()
        waits_in_line = reason is Reason.QUOTA_EXCEEDED
        state.refusal = Refusal(reason, message, now + timedelta(seconds=delay), keeps_pods, waits_in_line)
        if waits_in_line:
            self._quota_line.join(state.job.metadata.namespace)
        return Requeue(is_soon=True)

    async def _check_objects(self, state: JobState, context: JobContext) -> None:
        """Recreates optional objects that a user has deleted."""
        if context.launcher is None or not context.launcher.is_active or context.launcher.is_terminating:
            return
        checked_at = state.objects_checked_at
        if checked_at is None or context.now >= checked_at + timedelta(seconds=OBJECTS_SECONDS):
            await self._creation.recreate_deleted(context.job)
            state.objects_checked_at = context.now

    async def delete(self, job: HorovodJob, observed: Observed, plan: Plan) -> None:
        """Deletes and stops the pods of the plan. Raises ClusterError."""
        for kind in plan.delete_pod_groups:  # Before the pods, from which the next reconciliation would know the group.
            await self._delete_pod_group(job, kind)
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

        await gather(stop_pods() for _ in pods[:MAX_CONCURRENT_STOPS])
        subject = "the launcher" if [pod.role for pod in pods] == [Role.LAUNCHER] else count_text(len(pods), "pod")
        log_effect(job, f"stopped {subject} and kept the log")

    async def _delete_pod_group(self, job: HorovodJob, kind: Gang) -> None:
        try:
            await self._pod_groups.delete(job, kind)
            log_effect(job, "deleted the PodGroup")
        except Gone:
            pass

    async def _delete_pod(self, job: HorovodJob, pod: Pod) -> None:
        try:
            await self._writer.delete_pod(job.metadata.namespace, pod.name, pod.uid)
            log_effect(job, f"deleted pod {pod.name} of attempt {pod.attempt}")
        except (Gone, Conflict):
            pass
        self._pods.change(job.key, [pod], is_terminating=True)
