"""Who may use the dashboard on this machine: the browser that opened the address with the token."""

import hmac
import secrets

from aiohttp import web

from horovodjob_dashboard.access_guard import LOOPBACK, Handler

COOKIE = "hvj_dashboard"


class LocalAccess:
    """A random token, and the middleware that requires it."""

    def __init__(self, port: int) -> None:
        self._token = secrets.token_urlsafe(32)
        self.origins = tuple(f"http://{name}:{port}" for name in LOOPBACK)
        # A browser sends cookies to all ports of a host: two dashboards need two names.
        self._cookie = f"{COOKIE}_{port}"

    @property
    def address(self) -> str:
        """The address that the user opens once; the cookie serves from then on."""
        return f"{self.origins[0]}/?token={self._token}"

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answers a request with the cookie, and gives the cookie for the token."""
        if given := request.query.get("token"):
            response = web.HTTPSeeOther(request.path)
            if self._is_token(given):
                response.set_cookie(self._cookie, self._token, httponly=True, samesite="Strict")
            return response
        if not self._is_token(request.cookies.get(self._cookie, "")):
            return web.Response(status=403, text="Open the address that `hvj dashboard` printed.\n")
        return await handler(request)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self._token.encode())
