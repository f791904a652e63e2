"""Who may use the dashboard in the cluster: everybody whose bearer token the API server accepts, with its rights.

The token comes from the sign-in form, and then stays in the memory of this process, where a random session id in a
cookie finds it, with the secret of the pages; or an authenticating proxy sends it in a header of each request. It is in
no address, cookie, page or log.
"""

import asyncio
import hashlib
import logging
import re
import time
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from horovodjob.azurefiles.credentials import Options
from horovodjob.client.cluster.connections import without_redirects
from horovodjob_dashboard.access_guard import HEALTH, AccessGuard
from horovodjob_dashboard.page_session import PageSession, cookie_name
from horovodjob_dashboard.viewer import ABSENT_SECONDS, Feeds, SignedOut, Viewer

COOKIE = "horovodjob_session"
# Connect, read: otherwise requests to an API server that does not answer would occupy all threads.
REQUEST_SECONDS = (5, 20)
SESSION_SECONDS = 8 * 3600
SESSIONS_OF_A_USER = 10
# The characters of a bearer token (RFC 6750); longer ones do not fit into the headers that the API server accepts.
TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,16384}")
ENDED = "Your session has ended; sign in again."
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ApiServer:
    """Address of the API server, and the file with the certificates that it is verified with."""

    address: str
    ca_file: str

    def client(self, token: str) -> Any:
        """A client with the rights of a bearer token; a request has a limit of time."""
        from kubernetes.client import ApiClient, Configuration

        class Client(ApiClient):  # type: ignore[misc]
            def call_api(self, *request: Any, _request_timeout: Any = None, **options: Any) -> Any:
                return super().call_api(*request, _request_timeout=_request_timeout or REQUEST_SECONDS, **options)

        configuration = Configuration()
        configuration.retries = without_redirects(1)  # a connection that was kept open may have ended
        configuration.host, configuration.ssl_ca_cert = self.address, self.ca_file
        configuration.api_key = {"BearerToken": f"Bearer {token}"}
        client = Client(configuration)
        client.user_agent = "horovodjob-dashboard"
        return client


@dataclass(frozen=True, slots=True)
class _Session:
    viewer: Viewer
    began: float
    pages: PageSession


class TokenAccess:
    """The sessions of all viewers. With `header`, a proxy signs them in, and there is no form."""

    def __init__(
        self, api_server: ApiServer, guard: AccessGuard, feeds: Feeds, *, cluster: str, header: str, storage: Options
    ) -> None:
        self._api_server, self._guard, self._feeds, self._cluster = api_server, guard, feeds, cluster
        self._header, self._storage = header, storage
        self._sessions: dict[str, _Session] = {}

    def routes(self) -> list[web.RouteDef]:
        """The addresses for everybody."""
        forms = [web.post("/sign-in", self.sign_in), web.post("/sign-out", self.sign_out)]
        return [web.get(HEALTH, self.health), *([] if self._header else forms)]

    async def health(self, _: web.Request) -> web.Response:
        """The answer to the kubelet's probes."""
        return web.Response(text="ok\n")

    async def viewer(self, request: web.Request) -> Viewer:
        """The viewer of the session, or of the token that a proxy has sent. Raises SignedOut, PageNeeded."""
        session = self._sessions.get(key := self._key(request))
        if session is None and self._header:
            session = self._sessions[key] = await self._new_session(self._proxied_token(request))
        if session is None or not (self._header or session.pages.is_page(request)):
            raise SignedOut(ENDED if key else "")
        return session.viewer

    def forget(self, request: web.Request) -> None:
        """Ends the session of the request."""
        self._end(self._key(request))

    async def sign_in(self, request: web.Request) -> web.StreamResponse:
        """Begins a session with the token of the form."""
        form = await request.post()
        session = await self._new_session(str(form.get("token", "")).strip())
        others = [key for key, each in self._sessions.items() if each.viewer.user == session.viewer.user]
        for key in others[: -SESSIONS_OF_A_USER + 1]:
            self._end(key)
        self._sessions[key := session.pages.cookie] = session
        log.info("%s has signed in", session.viewer.user)
        response = session.pages.begin(str(form.get("target", "")))
        name, is_https = cookie_name(COOKIE, request), (self._guard.origin(request) or "").startswith("https:")
        response.set_cookie(name, key, httponly=True, samesite="Strict", secure=is_https, max_age=SESSION_SECONDS)
        return response

    async def sign_out(self, request: web.Request) -> web.StreamResponse:
        """Ends the session of the request, its streams and its watches."""
        session = self._sessions.get(self._key(request))
        if session and session.pages.is_page(request):
            self.forget(request)
        response = web.HTTPSeeOther("/")
        response.del_cookie(cookie_name(COOKIE, request))
        return response

    def sweep(self) -> None:
        """Ends sessions that have expired; behind a proxy, those of viewers who have left."""
        now = time.monotonic()
        for key, session in list(self._sessions.items()):
            is_absent = self._header and now - session.viewer.seen > ABSENT_SECONDS
            if is_absent or now - session.began > SESSION_SECONDS:
                self._end(key)

    def _key(self, request: web.Request) -> str:
        if self._header:
            return hashlib.sha256(self._proxied_token(request).encode()).hexdigest()
        return request.cookies.get(cookie_name(COOKIE, request), "")

    def _proxied_token(self, request: web.Request) -> str:
        token = request.headers.get(self._header, "").removeprefix("Bearer ").strip()
        if not token:
            raise SignedOut(f"The proxy in front of the dashboard sent no token in the header {self._header}.")
        return token

    def _end(self, key: str) -> None:
        if session := self._sessions.pop(key, None):
            session.viewer.leave()
            log.info("%s has left", session.viewer.user)

    async def _new_session(self, token: str) -> _Session:
        """A session of the user whom the API server knows by this token. Raises SignedOut."""
        from kubernetes.client import ApiException, AuthenticationV1Api

        if not TOKEN.fullmatch(token):
            raise SignedOut("This is not a bearer token: it must have letters, digits and the characters -._~+/= only.")
        client = self._api_server.client(token)
        reviews = AuthenticationV1Api(client)
        try:
            review = await asyncio.to_thread(reviews.create_self_subject_review, {})
        except ApiException as error:
            if error.status != 401:
                raise
            raise SignedOut(
                "The API server does not accept this token: it has expired, or is of another cluster."
            ) from None
        user = review.status.user_info.username
        viewer = Viewer(client, self._feeds, user=user, cluster=self._cluster, storage=self._storage)
        return _Session(viewer, time.monotonic(), PageSession())
