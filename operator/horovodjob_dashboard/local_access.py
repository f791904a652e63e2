"""Who may use the dashboard on this machine: the browser that opened an address with a token, once."""

import html
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web

from horovodjob_dashboard.access_guard import LOOPBACK, Handler
from horovodjob_dashboard.page_session import PageSession, is_same

COOKIE = "hvj_dashboard"
REFUSAL = "Open the address that `hvj dashboard` printed; it is valid once. Otherwise start `hvj dashboard` again.\n"
REDIRECT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>HorovodJob</title>
<meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0; url={address}"></head>
<body><a href="{address}">The dashboard</a></body></html>
"""


class LocalAccess:
    """The addresses with tokens, the sessions that they began, and the middleware that requires one of these."""

    def __init__(self, port: int) -> None:
        self.origins = tuple(f"http://{name}:{port}" for name in LOOPBACK)
        # A browser sends cookies to all ports of a host: two dashboards need two names.
        self._cookie = f"{COOKIE}_{port}"
        self._tokens: set[str] = set()
        self._sessions: dict[str, PageSession] = {}

    def new_address(self) -> str:
        """An address that begins a session, once."""
        self._tokens.add(token := secrets.token_urlsafe(32))
        return f"{self.origins[0]}/?token={token}"

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answers a request with the cookie, and gives the cookie and the secret of the pages for a token."""
        if given := request.query.get("token"):
            return self._begin(given, request.path)
        if self._session(request) is None:
            return web.Response(status=403, text=REFUSAL)
        return await handler(request)

    def is_page(self, request: web.Request) -> bool:
        """Whether a page of the session sent the request. Raises PageNeeded if it does not say."""
        session = self._session(request)
        return session is not None and session.is_page(request)

    def _begin(self, given: str, target: str) -> web.Response:
        token = next((each for each in self._tokens if is_same(given, each)), None)
        if token is None:
            return web.Response(status=403, text=REFUSAL)
        self._tokens.remove(token)
        session = PageSession()
        self._sessions[session.cookie] = session
        response = session.begin(target)
        response.set_cookie(self._cookie, session.cookie, httponly=True, samesite="Strict")
        return response

    def _session(self, request: web.Request) -> PageSession | None:
        return self._sessions.get(request.cookies.get(self._cookie, ""))


@contextmanager
def redirecting_file(address: str) -> Iterator[str]:
    """The address of a file that leads to this address, for a browser: every user sees the arguments of programs."""
    with tempfile.TemporaryDirectory(prefix="hvj-dashboard-", ignore_cleanup_errors=True) as directory:  # mode 0700
        path = Path(directory) / "dashboard.html"
        path.touch(mode=0o600)
        path.write_text(REDIRECT.format(address=html.escape(address)))
        yield path.as_uri()
