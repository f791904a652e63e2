"""The jobs that wait for room in the ResourceQuotas of their namespace: first come, first served, all pods or none."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from horovodjob.api.constants import ConditionType, Phase, Reason, Role
from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.controller.jobs.job_store import JobStore
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.pods.observed import Refusal, keeps_trying
from horovodjob_operator.domain.resource_quota import (
    Claim,
    Decision,
    PodUsage,
    Quota,
    WaitingJob,
    decide,
    decide_blindly,
    pod_usage,
    quota_from_raw,
)
from horovodjob_operator.domain.resources.launcher import launcher_pod
from horovodjob_operator.domain.resources.worker import worker_pod
from horovodjob_operator.errors import Gone, InvalidJob, Refused, Unavailable
from horovodjob_operator.kube.pod_cache import Key, PodCache
from horovodjob_operator.kube.requests.reader import Reader
from horovodjob_operator.kueue.queue import is_dispatched, uses_queue

# Events come in bursts: the pods of a job are gone one after the other.
SETTLE_SECONDS = 1.0
# Turns of waiting jobs end without an event.
RECHECK_SECONDS = 60
# Without the right to read quotas, or after an error, it is decided this often which job may try.
BLIND_SECONDS = 5
# A job that was refused more often is not tried before its next time, although the quotas seem to have room.
PROMPT_TRIES = 4
STARTING_PHASES = (None, Phase.QUEUED, Phase.STARTING, Phase.RESTARTING)
log = logging.getLogger("horovodjob.quotas")


class QuotaLine:
    """Decides who is next when pods are gone or a quota changes, with one request for all jobs of a namespace."""

    def __init__(self, store: JobStore, pods: PodCache, reader: Reader, clock: Callable[[], datetime]) -> None:
        self._store, self._pods, self._reader, self._clock = store, pods, reader, clock
        self.enqueue: Callable[[Key], None] = lambda _: None
        self._namespaces: set[str] = set()
        """Namespaces in which a job may wait."""
        self._due: set[str] = set()
        self._woken, self._used = asyncio.Event(), asyncio.Event()

    def must_wait(self, state: JobState, context: JobContext) -> bool:
        """Whether the job must not create pods before it is its turn."""
        if state.refusal or state.has_turn:
            return False
        for other in self._store.states_in(context.job.key[0]):
            self.restore(other)
        if context.is_resizable:
            others = (other for other in self._store.states_in(context.job.key[0]) if other is not state)
            is_first = len(context.workers) < context.job.spec.min_workers
            return not is_first and any(other.has_turn or _is_waiting(other) for other in others)
        return not context.has_pods and any(self._waiting(context.job.key[0]))

    def restore(self, state: JobState) -> None:
        """Gives a job its place in the line again, which a new process knows from the stored status alone.

        To be called before the first new status of the job.
        """
        job, ready = state.job, state.job.status.condition(ConditionType.READY)
        if ready is None or ready.reason != Reason.QUOTA_EXCEEDED or state.refusal or state.has_turn:
            return
        is_current = ready.observed_generation == job.metadata.generation
        if is_current and not is_dispatched(job) and not self._pods.of_job(job.key):
            state.refused_since = state.refused_since or self._clock()
            state.refusal = Refusal(Reason.QUOTA_EXCEEDED, ready.message, None, waits_in_line=True)
            self.join(job.metadata.namespace)

    def join(self, namespace: str) -> None:
        """A job of the namespace begins to wait."""
        self._namespaces.add(namespace)
        self._used.set()
        self.wake(namespace)

    def wake(self, namespace: str) -> None:
        """Something has changed that jobs of the namespace may wait for."""
        if namespace in self._namespaces:
            self._due.add(namespace)
            self._woken.set()

    def quota_changed(self, raw: Mapping[str, Any]) -> None:
        """A ResourceQuota was changed or deleted."""
        self.wake(raw["metadata"]["namespace"])

    async def until_used(self) -> bool:
        """Returns as soon as a job has to wait, and whether that took time."""
        is_new = not self._used.is_set()
        await self._used.wait()
        return is_new

    async def run(self) -> None:
        """Lets jobs start until cancelled."""
        while True:
            await self._woken.wait()
            await asyncio.sleep(SETTLE_SECONDS)
            self._woken.clear()
            namespaces, self._due = self._due, set()
            await asyncio.gather(*map(self._advance, namespaces))

    async def _advance(self, namespace: str) -> None:
        """Lets the jobs of a namespace start that can, and plans to look again."""
        if not any(self._waiting(namespace)):
            self._namespaces.discard(namespace)
            return
        seconds = RECHECK_SECONDS
        try:
            quotas: list[Quota] | None = list(map(quota_from_raw, await self._reader.resource_quotas(namespace)))
        except (Gone, Refused, Unavailable) as error:
            log.debug("%s: the quotas cannot be read: %s", namespace, error)
            quotas, seconds = None, BLIND_SECONDS
        waiting = {state.job.key: state for state in self._waiting(namespace)}
        for key, decision in self._decisions(namespace, quotas, waiting.values()).items():
            if self._apply(waiting[key], decision, is_informed=quotas is not None):
                self.enqueue(key)
            elif decision.may_start:
                seconds = BLIND_SECONDS
        asyncio.get_running_loop().call_later(seconds, self.wake, namespace)

    def _apply(self, state: JobState, decision: Decision, *, is_informed: bool) -> bool:
        """Lets a job start, or changes the message about its wait. Returns whether anything is new."""
        refusal, now = state.refusal, self._clock()
        if refusal is None:
            return False
        is_early = refusal.retry_at is not None and now < refusal.retry_at
        if decision.may_start and not (is_early and (not is_informed or state.refusal_count > PROMPT_TRIES)):
            state.refusal, state.has_turn = replace(refusal, waits_in_line=False, retry_at=now), True
            state.granted_workers = decision.workers
        elif decision.message:
            state.refusal = replace(refusal, message=keeps_trying(decision.message))
        return state.refusal != refusal

    def _decisions(
        self, namespace: str, quotas: list[Quota] | None, waiting: Iterable[JobState]
    ) -> dict[Key, Decision]:
        states = [state for state in self._store.states_in(namespace) if not _is_waiting(state)]
        starting = [claim for claim in map(self._missing, states) if any(number for _, number in claim)]
        jobs = [self._waiting_job(state) for state in waiting]
        if quotas is None:
            return decide_blindly(jobs, self._clock(), is_busy=bool(starting))
        running = [self._running(state) for state in self._store.states_in(namespace)]
        return decide(quotas, starting, running, jobs, self._clock())

    def _waiting(self, namespace: str) -> Iterable[JobState]:
        return (state for state in self._store.states_in(namespace) if _is_waiting(state))

    def _waiting_job(self, state: JobState) -> WaitingJob:
        job = state.job
        is_growing = job.status.phase is Phase.RUNNING
        claim = self._claim(state, 1, len(job.spec.worker_indices))
        if is_growing:
            claim = self._claim(state, 0, max(len(job.spec.worker_indices) - self._numbers(state)[1], 0))[1:]
        turn = timedelta(seconds=job.spec.scheduling.timeout_seconds)
        created_at = job.metadata.creation_timestamp
        since = state.refused_since or created_at
        return WaitingJob(job.key, created_at, state.uid, since, turn, claim, is_growing and bool(claim))

    def _missing(self, state: JobState) -> Claim:
        """The pods that a job still has to create if it need not wait."""
        job, refusal = state.job, state.refusal
        if state.granted_workers:
            return self._claim(state, 0, state.granted_workers)
        is_idle = job.spec.run_policy.suspend or (refusal is not None and not refusal.keeps_pods)
        is_queued = uses_queue(job) and job.status.start_time is None
        if is_idle or is_queued or job.status.phase not in STARTING_PHASES:
            return ()
        launchers, workers = self._numbers(state)
        return self._claim(state, max(1 - launchers, 0), max(len(job.spec.worker_indices) - workers, 0))

    def _running(self, state: JobState) -> Claim:
        return self._claim(state, *self._numbers(state))

    def _numbers(self, state: JobState) -> tuple[int, int]:
        """How many launchers and workers a job has."""
        pods = [pod for pod in self._pods.of_job(state.job.key).values() if pod.is_active]
        launchers = sum(pod.role is Role.LAUNCHER for pod in pods)
        return launchers, len(pods) - launchers

    def _claim(self, state: JobState, launchers: int, workers: int) -> Claim:
        try:
            usage = self.usage(state)
        except InvalidJob:
            return ()
        return ((usage[Role.LAUNCHER], launchers), (usage[Role.WORKER], workers))

    def usage(self, state: JobState) -> Mapping[Role, PodUsage]:
        """What the pods of a job count, as the API server has admitted them or as they are built. Raises InvalidJob."""
        if state.pod_usage is None:
            job, attempt = state.job, state.job.status.attempt
            state.pod_usage = {
                Role.LAUNCHER: pod_usage(launcher_pod(job, attempt, "", "")),
                Role.WORKER: pod_usage(worker_pod(job, 0, attempt, "")),
            }
        return state.pod_usage


def _is_waiting(state: JobState) -> bool:
    is_refused = state.refusal is not None and state.refusal.reason is Reason.QUOTA_EXCEEDED
    is_idle = state.job.spec.run_policy.suspend or state.job.metadata.deletion_timestamp is not None
    phase = state.job.status.phase
    can_wait = phase in STARTING_PHASES or (phase is Phase.RUNNING and state.job.spec.elastic is not None)
    return is_refused and not is_idle and can_wait
