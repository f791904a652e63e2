"""Reports of progress: rank 0 of a job posts them here, with a token that only its pod has.

What costs least is looked at first, and the API server is asked only about tokens of pods that are known and may
report, so that whoever can reach the port can neither write into a status nor keep the operator from its work.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from aiohttp import web

from horovodjob_operator.cluster.caches import Caches, Key, Record
from horovodjob_operator.cluster.tokens import Tokens
from horovodjob_operator.domain import names, progress, tokens
from horovodjob_operator.domain.progress import REPORT_BYTES, Result
from horovodjob_operator.domain.tokens import Claim
from horovodjob_operator.errors import ClusterError
from horovodjob_operator.metrics import REPORTS

PATH = "/progress"
# A report is one small request on a connection of its own.
CONNECTION_SECONDS = 5
CONNECTIONS = 256
CONNECTIONS_A_SECOND = 500
# Reports of one job: a trainer sends one in five seconds, and a last one.
BURST, BURST_SECONDS = 10, 10
# Reviews for one pod: its token is new every few minutes.
REVIEW_SECONDS = 2
TOLD_SECONDS = 60
STATUS = {
    Result.TAKEN: 204,
    Result.MALFORMED: 400,
    Result.TOO_LARGE: 413,
    Result.UNAUTHENTICATED: 401,
    Result.FOREIGN: 403,
    Result.STALE: 403,
    Result.TOO_OFTEN: 429,
    Result.NOT_LEADER: 503,
    Result.UNAVAILABLE: 503,
}
log = logging.getLogger("horovodjob.progress")


@dataclass(slots=True)
class _Sender:
    """How often a pod has been heard lately."""

    taken: deque[datetime] = field(default_factory=lambda: deque(maxlen=BURST))
    reviewed_at: datetime | None = None


class Reports:
    """Takes reports: a good one is kept with its job, and the job's next pass shows it."""

    def __init__(
        self,
        caches: Caches,
        tokens: Tokens,
        clock: Callable[[], datetime],
        *,
        news: Callable[[Key], None],
        leads: Callable[[], bool],
    ) -> None:
        self._caches, self._tokens, self._clock, self._news, self._leads = caches, tokens, clock, news, leads
        self._senders: dict[str, _Sender] = {}
        self._told_at: datetime | None = None

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to one request, on a connection that ends with it."""
        if request.path != PATH:
            result, words, status = None, "there is nothing here", 404
        elif request.method != "POST":
            result, words, status = None, f"post reports to {PATH}", 405
        else:
            result, words = await self._result(request)
            status = STATUS[result]
            REPORTS.labels(result).inc()
            self._tell(result, words)
        response = web.Response(status=status, text=f"{words}\n" if words and status != 204 else None)
        response.force_close()
        return response

    async def _result(self, request: web.BaseRequest) -> tuple[Result, str]:
        if not self._leads():
            return Result.NOT_LEADER, "another replica of the operator takes reports, try again"
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        claim = tokens.claim_of(token) if scheme == "Bearer" else None
        if claim is None:
            return Result.UNAUTHENTICATED, f"a token for the audience {names.PROGRESS_AUDIENCE} is needed"
        try:
            body = await _body(request)
            return (Result.TOO_LARGE, "") if body is None else await self._take(token, claim, body)
        except (ClusterError, ConnectionError) as error:
            return Result.UNAVAILABLE, str(error)
        except web.RequestPayloadError:
            return Result.MALFORMED, "the body was cut off"

    async def _take(self, token: str, claim: Claim, body: bytes) -> tuple[Result, str]:
        try:
            report = progress.parse_report(body)
        except ValueError as error:
            return Result.MALFORMED, str(error)
        if self._record(claim) is None:
            return Result.FOREIGN, f"pod {claim.namespace}/{claim.pod} is not where rank 0 of a job runs"
        now, sender = self._clock(), self._sender(claim)
        if not self._tokens.is_known(token):
            if sender.reviewed_at and now - sender.reviewed_at < timedelta(seconds=REVIEW_SECONDS):
                return Result.TOO_OFTEN, "the last token for this pod was reviewed a moment ago"
            sender.reviewed_at = now
        if not await self._tokens.is_genuine(token, claim, now=now.timestamp()):
            return Result.UNAUTHENTICATED, "the API server does not confirm the token"
        record = self._record(claim)  # as it is after the review
        if record is None or not progress.is_current(record.job, report):
            return Result.STALE, f"attempt {report.attempt} of the job does not run (any more)"
        if len(sender.taken) == BURST and now - sender.taken[0] < timedelta(seconds=BURST_SECONDS):
            return Result.TOO_OFTEN, f"at most {BURST} reports in {BURST_SECONDS} s"
        sender.taken.append(now)
        record.report = report
        self._news(record.job.key)
        return Result.TAKEN, ""

    def _record(self, claim: Claim) -> Record | None:
        """The job whose rank 0 can be in the pod that is claimed."""
        key = (claim.namespace, claim.job)
        record, pod = self._caches.jobs.get(key), self._caches.pods.get(key, {}).get(claim.pod)
        known = record and pod and pod.uid == claim.uid and tokens.may_report(record.job, pod)
        return record if known else None

    def _sender(self, claim: Claim) -> _Sender:
        """Of the pod; those of pods that are gone are forgotten when they are as many as those that are there."""
        if claim.uid not in self._senders and len(self._senders) >= 2 * len(self._caches.jobs):
            there = {pod.uid for pods in self._caches.pods.values() for pod in pods.values()}
            self._senders = {uid: sender for uid, sender in self._senders.items() if uid in there}
        return self._senders.setdefault(claim.uid, _Sender())

    def _tell(self, result: Result, words: str) -> None:
        """One line a minute about what is refused, whoever sends how much."""
        if result in (Result.TAKEN, Result.NOT_LEADER):
            return
        now = self._clock()
        if self._told_at is None or now - self._told_at > timedelta(seconds=TOLD_SECONDS):
            self._told_at = now
            log.info("a report of progress was refused (%s): %s; others are only counted for a minute", result, words)


async def _body(request: web.BaseRequest) -> bytes | None:
    """The body; None as soon as it is too large."""
    if (request.content_length or 0) > REPORT_BYTES:
        return None
    body = b""
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > REPORT_BYTES:
            return None
    return body


class _Refusal(asyncio.Protocol):
    """What a connection meets that is one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ends it."""
        transport.close()


class _Door(web.Server):
    """Lets in so many connections at once and a second, each for a few seconds whatever it does with them."""

    def __init__(self, reports: Reports) -> None:
        # What strangers send is no error of the operator's, so the library's own words are dropped.
        silent = logging.getLogger("horovodjob.progress.http")
        silent.disabled = True
        super().__init__(reports.answer, access_log=None, logger=silent, auto_decompress=False, lingering_time=0)
        self._ends: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        self._second, self._in_second = 0, 0

    def __call__(self) -> web.RequestHandler:
        """The protocol of the next connection."""
        second = int(asyncio.get_running_loop().time())
        self._in_second = self._in_second + 1 if second == self._second else 1
        self._second = second
        if len(self._ends) >= CONNECTIONS or self._in_second > CONNECTIONS_A_SECOND:
            return _Refusal()  # type: ignore[return-value]
        return super().__call__()

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Limits the time of a connection."""
        super().connection_made(handler, transport)
        self._ends[handler] = asyncio.get_running_loop().call_later(CONNECTION_SECONDS, transport.abort)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Forgets a connection; a transport that is closed must not be ended again."""
        super().connection_lost(handler, exc)
        if end := self._ends.pop(handler, None):
            end.cancel()


async def serve(port: int, reports: Reports) -> web.ServerRunner:
    """Starts the server for reports."""
    runner = web.ServerRunner(_Door(reports), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner
