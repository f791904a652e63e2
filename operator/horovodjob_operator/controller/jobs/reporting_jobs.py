"""The jobs that can send progress reports, and the way of an accepted report to the reconciler."""

from collections.abc import Callable
from datetime import datetime

from horovodjob.api.constants import ConditionType
from horovodjob.api.job import HorovodJob
from horovodjob_operator.controller.jobs.heartbeats import Heartbeats
from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.controller.jobs.job_store import JobStore
from horovodjob_operator.domain.goodput import has_slow_rank_news
from horovodjob_operator.domain.progress_report import ProgressReport, TokenClaim, may_report
from horovodjob_operator.domain.stall_report import StallReport
from horovodjob_operator.kube.pod_cache import Key, PodCache

# A deputy reports that rank 0 does not answer. It is wrong if rank 0 itself has reported so recently: during a stall,
# rank 0 reports within that time, also when no other rank answers.
DEPUTY_SECONDS = 60


class ReportingJobs:
    """Jobs and pods, as the server for progress reports needs them."""

    def __init__(
        self,
        store: JobStore,
        pods: PodCache,
        enqueue: Callable[[Key], None],
        heartbeats: Heartbeats,
        clock: Callable[[], datetime],
    ) -> None:
        self._store, self._pods, self._enqueue = store, pods, enqueue
        self._heartbeats, self._clock = heartbeats, clock

    def reporting_job(self, claim: TokenClaim) -> HorovodJob | None:
        """The job that can have its rank 0 in the claimed pod."""
        key = (claim.namespace, claim.job)
        state, pod = self._store.states.get(key), self._pods.of_job(key).get(claim.pod)
        can_report = state and pod and pod.uid == claim.uid and may_report(state.job, pod)
        return state.job if state and can_report else None

    def accept_report(self, job: HorovodJob, claim: TokenClaim, report: ProgressReport | StallReport) -> None:
        """Stores a report and enqueues its job, if the status has to say something else."""
        state = self._store.states.get(job.key)
        if state is None:
            return
        if isinstance(report, ProgressReport):  # a step was completed
            self._heartbeats.record(state, claim.uid, report.attempt, None, self._clock())
            state.progress_report, state.stall_report = report, None
        elif report.is_deputy:
            if self._heartbeats.seconds_since(state, report.attempt) < DEPUTY_SECONDS:
                return  # The network between both pods has failed, and rank 0 reports that itself.
            state.stall_report = report
        else:
            self._heartbeats.record(state, claim.uid, report.attempt, report.next_within, self._clock())
            before, state.stall_report = state.stall_report, report
            state.usage = (report.attempt, report.usage) if report.usage else state.usage
            is_stall = report.stall is not None or (before is not None and before.stall is not None)
            if not is_stall and _says_progress(state) and not has_slow_rank_news(state.job, report.usage):
                return  # It is written with the next change, and causes none.
        self._enqueue(job.key)

    def pod_uids(self) -> set[str]:
        """UIDs of the pods of all jobs."""
        return {pod.uid for pod in self._pods}

    @property
    def unfinished_count(self) -> int:
        """Number of the jobs with a state."""
        return len(self._store.states)


def _says_progress(state: JobState) -> bool:
    """Whether the job counts as progressing: the end of a stall or of a silence would change nothing."""
    progressing = state.job.status.condition(ConditionType.PROGRESSING)
    return progressing is None or progressing.status == "True"
