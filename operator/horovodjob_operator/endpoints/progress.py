"""Reports of progress: rank 0 of a job posts them here, with a token that only its pod has.

What costs least is looked at first, and the API server is asked only about tokens that it has signed for pods that are
known and may report. What is limited is limited for each address or for each pod, so that whoever can reach the port
can neither write into a status, nor keep the operator from its work or others from reporting.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from aiohttp import web

from horovodjob_operator.cluster.caches import Caches, Key, Record
from horovodjob_operator.cluster.tokens import Tokens
from horovodjob_operator.domain import names
from horovodjob_operator.domain import progress_report as progress
from horovodjob_operator.domain import token_claim as tokens
from horovodjob_operator.domain.progress_report import MAX_REPORT_BYTES, ReportResult
from horovodjob_operator.domain.token_claim import TokenClaim
from horovodjob_operator.errors import ClusterError
from horovodjob_operator.metrics import REPORTS

PATH = "/progress"
# A report is one small request on a connection of its own. Many pods have the address of their node.
CONNECTION_SECONDS = 5
CONNECTIONS, CONNECTIONS_OF_ADDRESS = 256, 32
CONNECTIONS_A_SECOND, CONNECTIONS_A_SECOND_OF_ADDRESS = 500, 50
BACKLOG = 1024
# Reports of one job: a trainer sends one in five seconds, and a last one.
BURST, BURST_SECONDS = 10, 10
# Reviews for one pod and address: the pod's token is new every few minutes.
REVIEW_SECONDS = 2
TOLD_SECONDS = 60
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
class _Sender:
    """How often a pod has been heard lately, and from where its tokens came that were reviewed."""

    taken: deque[datetime] = field(default_factory=lambda: deque(maxlen=BURST))
    reviewed_at: dict[str, datetime] = field(default_factory=dict)

    def may_be_reviewed(self, address: str, now: datetime) -> bool:
        """Whether a token from this address has its turn, and takes it."""
        since = now - timedelta(seconds=REVIEW_SECONDS)
        self.reviewed_at = {other: at for other, at in self.reviewed_at.items() if at > since}
        if address in self.reviewed_at:
            return False
        self.reviewed_at[address] = now
        return True


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

    async def _result(self, request: web.BaseRequest) -> tuple[ReportResult, str]:
        if not self._leads():
            return ReportResult.NOT_LEADER, "another replica of the operator takes reports, try again"
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        claim = tokens.token_claim(token) if scheme == "Bearer" else None
        if claim is None:
            return ReportResult.UNAUTHENTICATED, f"a token for the audience {names.PROGRESS_AUDIENCE} is needed"
        try:
            body = await _body(request)
            address = request.remote or ""
            return (ReportResult.TOO_LARGE, "") if body is None else await self._take(address, token, claim, body)
        except (ClusterError, ConnectionError) as error:
            return ReportResult.UNAVAILABLE, str(error)
        except web.RequestPayloadError:
            return ReportResult.MALFORMED, "the body was cut off"

    async def _take(self, address: str, token: str, claim: TokenClaim, body: bytes) -> tuple[ReportResult, str]:
        try:
            report = progress.parse_report(body)
        except ValueError as error:
            return ReportResult.MALFORMED, str(error)
        if self._record(claim) is None:
            return ReportResult.FOREIGN, f"pod {claim.namespace}/{claim.pod} is not where rank 0 of a job runs"
        now, sender = self._clock(), self._sender(claim)
        if self._tokens.known(token) is None:
            if not await self._tokens.may_be_genuine(token):
                return ReportResult.UNAUTHENTICATED, "the API server has not signed the token"
            if not sender.may_be_reviewed(address, now):
                return ReportResult.TOO_OFTEN, "the last token for this pod was reviewed a moment ago"
        if not await self._tokens.is_genuine(token, claim, now=now.timestamp()):
            return ReportResult.UNAUTHENTICATED, "the API server does not confirm the token"
        record = self._record(claim)  # as it is after the review
        if record is None or not progress.is_current(record.job, report):
            return ReportResult.STALE, f"attempt {report.attempt} of the job does not run (any more)"
        if len(sender.taken) == BURST and now - sender.taken[0] < timedelta(seconds=BURST_SECONDS):
            return ReportResult.TOO_OFTEN, f"at most {BURST} reports in {BURST_SECONDS} s"
        sender.taken.append(now)
        record.report = report
        self._news(record.job.key)
        return ReportResult.ACCEPTED, ""

    def _record(self, claim: TokenClaim) -> Record | None:
        """The job whose rank 0 can be in the pod that is claimed."""
        key = (claim.namespace, claim.job)
        record, pod = self._caches.jobs.get(key), self._caches.pods.get(key, {}).get(claim.pod)
        known = record and pod and pod.uid == claim.uid and tokens.may_report(record.job, pod)
        return record if known else None

    def _sender(self, claim: TokenClaim) -> _Sender:
        """Of the pod; those of pods that are gone are forgotten when they are as many as those that are there."""
        if claim.uid not in self._senders and len(self._senders) >= 2 * len(self._caches.jobs):
            there = {pod.uid for pods in self._caches.pods.values() for pod in pods.values()}
            self._senders = {uid: sender for uid, sender in self._senders.items() if uid in there}
        return self._senders.setdefault(claim.uid, _Sender())

    def _tell(self, result: ReportResult, words: str) -> None:
        """One line a minute about what is refused, whoever sends how much."""
        if result in (ReportResult.ACCEPTED, ReportResult.NOT_LEADER):
            return
        now = self._clock()
        if self._told_at is None or now - self._told_at > timedelta(seconds=TOLD_SECONDS):
            self._told_at = now
            log.info("a report of progress was refused (%s): %s; others are only counted for a minute", result, words)


async def _body(request: web.BaseRequest) -> bytes | None:
    """The body; None as soon as it is too large."""
    if (request.content_length or 0) > MAX_REPORT_BYTES:
        return None
    body = b""
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > MAX_REPORT_BYTES:
            return None
    return body


class _Entrance(asyncio.Protocol):
    """What a connection meets first: its address is known only now."""

    def __init__(self, door: "_Door") -> None:
        self._door = door

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Hands the connection to the server, or ends it."""
        if not self._door.lets_in(_address(transport)):
            transport.abort()
            return
        handler = self._door.handler()
        transport.set_protocol(handler)
        handler.connection_made(transport)


class _Door(web.Server):
    """Lets in so many connections at once and a second, in all and of each address, each for a few seconds.

    An address with many of them never keeps out one with few: the first of an address in a second is let in whatever
    the others do, and where all are in use, the oldest of the address that has most has to go.
    """

    def __init__(self, reports: Reports) -> None:
        # What strangers send is no error of the operator's, so the library's own words are dropped.
        silent = logging.getLogger("horovodjob.progress.http")
        silent.disabled = True
        super().__init__(reports.answer, access_log=None, logger=silent, auto_decompress=False, lingering_time=0)
        self._open: dict[str, dict[web.RequestHandler, asyncio.Transport]] = {}
        self._ends: dict[web.RequestHandler, tuple[str, asyncio.TimerHandle]] = {}
        self._second = 0
        self._in_second: Counter[str] = Counter()

    def __call__(self) -> web.RequestHandler:
        """The protocol of the next connection."""
        return _Entrance(self)  # type: ignore[return-value]

    def handler(self) -> web.RequestHandler:
        """The server's own protocol, for a connection that is let in."""
        return super().__call__()

    def lets_in(self, address: str) -> bool:
        """Whether a connection of this address has its turn, and takes it."""
        second = int(asyncio.get_running_loop().time())
        if second != self._second:
            self._second = second
            self._in_second.clear()
        taken = self._in_second[address]
        if taken >= CONNECTIONS_A_SECOND_OF_ADDRESS or len(self._open.get(address, ())) >= CONNECTIONS_OF_ADDRESS:
            return False
        if taken and self._in_second.total() >= CONNECTIONS_A_SECOND:
            return False
        self._in_second[address] += 1
        return True

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Limits the time of a connection, and makes room for it."""
        super().connection_made(handler, transport)
        if len(self._ends) >= CONNECTIONS:
            oldest, its_transport = next(iter(max(self._open.values(), key=len).items()))
            self._forget(oldest)
            its_transport.abort()
        address = _address(transport)
        self._open.setdefault(address, {})[handler] = transport
        self._ends[handler] = (address, asyncio.get_running_loop().call_later(CONNECTION_SECONDS, transport.abort))

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Forgets a connection."""
        super().connection_lost(handler, exc)
        self._forget(handler)

    def _forget(self, handler: web.RequestHandler) -> None:
        """No more counts a connection; a transport that is closed must not be ended again."""
        if handler not in self._ends:
            return
        address, end = self._ends.pop(handler)
        end.cancel()
        del self._open[address][handler]
        if not self._open[address]:
            del self._open[address]


def _address(transport: asyncio.Transport) -> str:
    """Where a connection comes from; empty if it has ended already."""
    return str((transport.get_extra_info("peername") or ("",))[0])


async def serve(port: int, reports: Reports) -> web.ServerRunner:
    """Starts the server for reports."""
    runner = web.ServerRunner(_Door(reports), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, port=port, backlog=BACKLOG).start()
    return runner
