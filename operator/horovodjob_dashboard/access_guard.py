"""Who may use the dashboard: the browser that opened the address with the token, on this machine.

Other pages in the same browser can send requests to this machine too. Their requests have no cookie (SameSite), another
Host (DNS rebinding) or another Origin, and are refused.
"""

import hmac
import secrets
from collections.abc import Awaitable, Callable

from aiohttp import web

COOKIE = "hvj_dashboard"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AccessGuard:
    """A random token, and the middleware that requires it."""

    def __init__(self, port: int) -> None:
        self._token = secrets.token_urlsafe(32)
        self._hosts = tuple(f"{name}:{port}" for name in ("127.0.0.1", "localhost"))
        # A browser sends cookies to all ports of a host: two dashboards need two names.
        self._cookie = f"{COOKIE}_{port}"

    @property
    def address(self) -> str:
        """The address that the user opens once; the cookie serves from then on."""
        return f"http://{self._hosts[0]}/?token={self._token}"

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answers the request if it may, with headers for security."""
        response = await self._answer(request, handler)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.host not in self._hosts:
            return web.Response(status=403, text=f"This dashboard answers as {self._hosts[0]} only.\n")
        if (origin := request.headers.get("Origin")) and origin != f"http://{request.host}":
            return web.Response(status=403, text="Requests of other pages are refused.\n")
        if given := request.query.get("token"):
            response: web.StreamResponse = web.HTTPSeeOther(request.path)
            if self._is_token(given):
                response.set_cookie(self._cookie, self._token, httponly=True, samesite="Strict")
            return response
        if not self._is_token(request.cookies.get(self._cookie, "")):
            return web.Response(status=403, text="Open the address that `hvj dashboard` printed.\n")
        return await handler(request)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self._token.encode())
