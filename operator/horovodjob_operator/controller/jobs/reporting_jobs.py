"""The jobs that can send progress reports, and the way of an accepted report to the reconciler."""

from collections.abc import Callable

from horovodjob.api.job import HorovodJob
from horovodjob_operator.controller.jobs.job_store import JobStore
from horovodjob_operator.domain.goodput import has_slow_rank_news
from horovodjob_operator.domain.progress_report import ProgressReport, TokenClaim, may_report
from horovodjob_operator.domain.stall_report import StallReport
from horovodjob_operator.kube.caches.pod_cache import Key, PodCache


class ReportingJobs:
    """Jobs and pods, as the server for progress reports needs them."""

    def __init__(self, store: JobStore, pods: PodCache, enqueue: Callable[[Key], None]) -> None:
        self._store, self._pods, self._enqueue = store, pods, enqueue

    def reporting_job(self, claim: TokenClaim) -> HorovodJob | None:
        """The job that can have its rank 0 in the claimed pod."""
        key = (claim.namespace, claim.job)
        state, pod = self._store.states.get(key), self._pods.of_job(key).get(claim.pod)
        can_report = state and pod and pod.uid == claim.uid and may_report(state.job, pod)
        return state.job if state and can_report else None

    def accept_report(self, job: HorovodJob, report: ProgressReport | StallReport) -> None:
        """Stores a report and enqueues its job."""
        if state := self._store.states.get(job.key):
            if isinstance(report, StallReport):
                before, state.stall_report = state.stall_report, report
                state.usage = (report.attempt, report.usage) if report.usage else state.usage
                is_stall = report.stall is not None or (before is not None and before.stall is not None)
                if not is_stall and not has_slow_rank_news(state.job, report.usage):
                    return  # It is written with the next change, and causes none.
            else:  # a step was completed
                state.progress_report, state.stall_report = report, None
            self._enqueue(job.key)

    def pod_uids(self) -> set[str]:
        """UIDs of the pods of all jobs."""
        return {pod.uid for pod in self._pods}

    @property
    def unfinished_count(self) -> int:
        """Number of the jobs with a state."""
        return len(self._store.states)
