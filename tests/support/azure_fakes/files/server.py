"""The HTTP service: parses and authorizes requests, and runs the operations.

    with FilesService([Account("train", tmp_path)]) as service:
        client = ShareServiceClient.from_connection_string(service.connection_string("train"))

A URL has the account in its path, as that of an emulator.
"""

import asyncio
import ssl
import threading
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Self
from urllib.parse import unquote

from aiohttp import web

from support.azure_fakes.files.accounts import Account
from support.azure_fakes.files.authorization import Claims, Target, check, raw_path
from support.azure_fakes.files.errors import Refusal
from support.azure_fakes.files.faults import Fault, Faults, Kind
from support.azure_fakes.files.operations import OPERATIONS, Call
from support.azure_fakes.https import LOOPBACK


@dataclass(frozen=True, slots=True)
class Answered:
    """A request and its response."""

    method: str
    path: str
    query: str
    range: str
    status: int


class FilesService:
    """Azure Files for these accounts, on a port of the loopback interface.

    With `tls`, a directory, it speaks HTTPS; the certificate that clients trust is `certificate`.
    `claims` reads the tokens of Entra: without it tokens are rejected.
    """

    def __init__(self, accounts: Iterable[Account], *, tls: Path | None = None, claims: Claims | None = None) -> None:
        self.accounts = {account.name: account for account in accounts}
        self.claims = claims
        self.faults = Faults()
        self.requests: list[Answered] = []
        self.certificate = tls / "server.pem" if tls else None
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self.is_delayed = False
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self.serve(),), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    @property
    def scheme(self) -> str:
        return "https" if self.certificate else "http"

    def url(self, account: str) -> str:
        """Endpoint of an account."""
        return f"{self.scheme}://{LOOPBACK}:{self._port}/{account}"

    def connection_string(self, account: str) -> str:
        """The connection string in the format of the portal, with the endpoint of this service."""
        key = self.accounts[account].key
        return (
            f"DefaultEndpointsProtocol={self.scheme};AccountName={account};AccountKey={key};"
            f"FileEndpoint={self.url(account)}"
        )

    async def serve(self) -> None:
        """Serve requests until the context ends."""
        application = web.Application(client_max_size=16 << 20)
        application.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, LOOPBACK, self._port, ssl_context=self._tls())
        await site.start()
        self._port = runner.addresses[0][1]
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    def _tls(self) -> ssl.SSLContext | None:
        if self.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        return context

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        fault = self.faults.next_for(request)
        if fault and fault.kind is Kind.SLOW:
            self.is_delayed = True
            await asyncio.sleep(fault.seconds)
        body = await request.read()
        if fault and fault.kind is Kind.RESET and request.method not in ("GET", "HEAD"):
            response = web.Response()  # the request is lost: no operation
        else:
            response = self._response(request, body, fault)
        response.headers["x-ms-request-id"] = str(uuid.uuid4())
        response.headers["x-ms-version"] = request.headers.get("x-ms-version", "2024-11-04")
        response.headers["Date"] = formatdate(usegmt=True)
        query = request.raw_path.partition("?")[2]
        asked = request.headers.get("x-ms-range") or request.headers.get("Range") or ""
        self.requests.append(Answered(request.method, unquote(raw_path(request)), query, asked, response.status))
        if fault and fault.kind in (Kind.RESET, Kind.TRUNCATE, Kind.LOST_ANSWER):
            return await _broken(request, response, fault)
        return response

    def _response(self, request: web.Request, body: bytes, fault: Fault | None) -> web.Response:
        try:
            if fault and fault.kind is Kind.BUSY:
                raise Refusal("ServerBusy", headers={"Retry-After": "1"})
            if fault and fault.kind is Kind.THROTTLED:
                raise Refusal("TooManyRequests", headers={"Retry-After": "0"})
            if fault and fault.kind is Kind.DENIED:
                raise Refusal("AuthorizationFailure")
            target = self._target(request)
            query = request.query
            found = OPERATIONS.get((request.method, query.get("restype", ""), query.get("comp", "")))
            if found is None or not target.share:
                raise Refusal("UnsupportedQueryParameter")
            operation, access = found
            check(request, target, access, self.claims)
            call = Call(request, target)
            call.body = body
            return operation(call)
        except Refusal as refusal:
            headers = {"x-ms-error-code": refusal.code, **refusal.headers}
            return web.Response(
                status=refusal.status, body=refusal.body, headers=headers, content_type="application/xml"
            )

    def _target(self, request: web.Request) -> Target:
        path = unquote(raw_path(request)).strip("/")
        name, _, path = path.partition("/")
        share, _, path = path.partition("/")
        return Target(self.accounts[name], share, path)


async def _broken(request: web.Request, response: web.Response, fault: Fault) -> web.StreamResponse:
    """Send the headers and half of the body, or nothing without a body, and close the connection."""
    transport = request.transport
    assert transport is not None
    body = response.body if isinstance(response.body, bytes) else b""
    if fault.kind is Kind.LOST_ANSWER or not body:
        transport.abort()
        return response
    stream = web.StreamResponse(status=response.status, headers=response.headers)
    stream.content_length = len(body)
    await stream.prepare(request)
    await stream.write(body[: len(body) // 2])
    if fault.kind is Kind.RESET:
        transport.abort()
    else:
        transport.close()
    return stream
