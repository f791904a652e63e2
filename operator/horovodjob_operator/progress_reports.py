"""The server for progress reports. Rank 0 of a job posts them, with a token that only its pod has.

The cheapest checks are first: the API server reviews only tokens that it has signed for known pods that may report. The
limits apply to each address or each pod. So a client that can connect to the port can neither change a status, nor
overload the operator, nor prevent the reports of others.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from aiohttp import web

from horovodjob_operator.controller.jobs.reporting_jobs import ReportingJobs
from horovodjob_operator.domain import names, progress_report, stall_report
from horovodjob_operator.domain.progress_report import MAX_REPORT_BYTES, ReportResult, TokenClaim
from horovodjob_operator.errors import ClusterError
from horovodjob_operator.kube.token_review import TokenReviewer
from horovodjob_operator.metrics import REPORTS
from horovodjob_operator.servers.connection_limits import LimitedServer

PATH = "/progress"
BACKLOG = 1024
# Reports of one pod: a trainer sends one every five seconds, and a last one.
MAX_REPORTS, REPORTS_SECONDS = 10, 10
# Between reviews for one pod and address: the kubelet rotates the token of a pod every few minutes.
REVIEW_SECONDS = 2
LOG_SECONDS = 60
STATUS = {
    ReportResult.ACCEPTED: 204,
    ReportResult.MALFORMED: 400,
    ReportResult.TOO_LARGE: 413,
    ReportResult.UNAUTHENTICATED: 401,
    ReportResult.FOREIGN: 403,
    ReportResult.STALE: 403,
    ReportResult.TOO_OFTEN: 429,
    ReportResult.NOT_LEADER: 503,
    ReportResult.UNAVAILABLE: 503,
}
log = logging.getLogger("horovodjob.progress")


@dataclass(slots=True)
class _Pod:
    """When a pod reported last, and when its tokens were reviewed, by the address that sent them."""

    reported_at: deque[datetime] = field(default_factory=lambda: deque(maxlen=MAX_REPORTS))
    reviewed_at: dict[str, datetime] = field(default_factory=dict)

    def permits_review(self, address: str, now: datetime) -> bool:
        """Whether the limit permits a review of a token from this address, which is then counted."""
        since = now - timedelta(seconds=REVIEW_SECONDS)
        self.reviewed_at = {other: at for other, at in self.reviewed_at.items() if at > since}
        if address in self.reviewed_at:
            return False
        self.reviewed_at[address] = now
        return True


class ProgressReports:
    """Handles progress reports: the status of the job shows an accepted report after its next reconciliation."""

    def __init__(
        self,
        jobs: ReportingJobs,
        reviewer: TokenReviewer,
        clock: Callable[[], datetime],
        *,
        is_leader: Callable[[], bool],
    ) -> None:
        self._jobs, self._reviewer, self._clock, self._is_leader = jobs, reviewer, clock, is_leader
        self._pods: dict[str, _Pod] = {}
        self._logged_at: datetime | None = None

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        """The response to one request; the connection is closed after it."""
        if request.path != PATH:
            message, status = "not found", 404
        elif request.method != "POST":
            message, status = f"post reports to {PATH}", 405
        else:
            result, message = await self._result(request)
            status = 200 if result is ReportResult.ACCEPTED and message else STATUS[result]
            REPORTS.labels(result).inc()
            self._log(result, message)
        response = web.Response(status=status, text=f"{message}\n" if message and status != 204 else None)
        response.force_close()
        return response

    async def _result(self, request: web.BaseRequest) -> tuple[ReportResult, str]:
        if not self._is_leader():
            return ReportResult.NOT_LEADER, "this replica of the operator is not the leader, try again"
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        claim = progress_report.token_claim(token) if scheme == "Bearer" else None
        if claim is None:
            return ReportResult.UNAUTHENTICATED, f"a token for the audience {names.PROGRESS_AUDIENCE} is required"
        try:
            body = await _body(request)
            address = request.remote or ""
            return (ReportResult.TOO_LARGE, "") if body is None else await self._handle(address, token, claim, body)
        except (ClusterError, ConnectionError) as error:
            return ReportResult.UNAVAILABLE, str(error)
        except web.RequestPayloadError:
            return ReportResult.MALFORMED, "the body is incomplete"

    async def _handle(self, address: str, token: str, claim: TokenClaim, body: bytes) -> tuple[ReportResult, str]:
        try:
            report = stall_report.parse_stall(body) or progress_report.parse_report(body)
        except ValueError as error:
            return ReportResult.MALFORMED, str(error)
        if self._jobs.reporting_job(claim) is None:
            return ReportResult.FOREIGN, f"pod {claim.namespace}/{claim.pod} does not run rank 0 of a job"
        now, pod = self._clock(), self._pod(claim)
        if self._reviewer.cached_result(token) is None:
            if not await self._reviewer.may_be_signed(token):
                return ReportResult.UNAUTHENTICATED, "the API server has not signed the token"
            if not pod.permits_review(address, now):
                return ReportResult.TOO_OFTEN, "a token of this pod was reviewed less than two seconds ago"
        if not await self._reviewer.confirms(token, claim, now=now.timestamp()):
            return ReportResult.UNAUTHENTICATED, "the API server does not confirm the token"
        job = self._jobs.reporting_job(claim)  # It can have changed during the review.
        if job is None or not progress_report.is_current(job, report.attempt):
            return ReportResult.STALE, f"attempt {report.attempt} of the job does not run"
        if len(pod.reported_at) == MAX_REPORTS and now - pod.reported_at[0] < timedelta(seconds=REPORTS_SECONDS):
            return ReportResult.TOO_OFTEN, f"at most {MAX_REPORTS} reports in {REPORTS_SECONDS} s"
        pod.reported_at.append(now)
        self._jobs.accept_report(job, claim, report)
        return ReportResult.ACCEPTED, report.changes

    def _pod(self, claim: TokenClaim) -> _Pod:
        """The limits of a pod. Those of deleted pods are dropped when there are twice as many as jobs."""
        if claim.uid not in self._pods and len(self._pods) >= 2 * self._jobs.unfinished_count:
            existing = self._jobs.pod_uids()
            self._pods = {uid: pod for uid, pod in self._pods.items() if uid in existing}
        return self._pods.setdefault(claim.uid, _Pod())

    def _log(self, result: ReportResult, message: str) -> None:
        """Logs at most one refused report a minute."""
        if result in (ReportResult.ACCEPTED, ReportResult.NOT_LEADER):
            return
        now = self._clock()
        if self._logged_at is None or now - self._logged_at > timedelta(seconds=LOG_SECONDS):
            self._logged_at = now
            log.info("refused a progress report (%s): %s; logs no other for a minute", result, message)


async def _body(request: web.BaseRequest) -> bytes | None:
    """The body; None if it is too large."""
    if (request.content_length or 0) > MAX_REPORT_BYTES:
        return None
    body = b""
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > MAX_REPORT_BYTES:
            return None
    return body


async def start_server(port: int, reports: ProgressReports) -> web.ServerRunner:
    """Starts the server for progress reports. Raises OSError."""
    runner = web.ServerRunner(LimitedServer(reports.respond), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, port=port, backlog=BACKLOG).start()
    return runner
