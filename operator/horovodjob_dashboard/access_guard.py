"""Which requests may reach the pages: those that a browser sends for a page of this dashboard.

Other pages in the same browser can send requests too. Theirs have another Host (DNS rebinding) or another Origin, and
are refused. A request that changes something must name the Origin of this dashboard, which a forged form cannot.
"""

from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    # Without a referrer policy that includes the own pages, browsers send `Origin: null` with forms.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# The name of such a file has its version.
VERSIONED = "/static/uPlot-"
CACHED = {"Cache-Control": "private, max-age=31536000, immutable"}
HEALTH = "/healthz"
LOOPBACK = ("127.0.0.1", "localhost")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AccessGuard:
    """The addresses at which the dashboard answers, as in `https://jobs.example.com`.

    `http://localhost` are all ports of this machine, because the user of `kubectl port-forward` chooses one.
    """

    def __init__(self, origins: Iterable[str]) -> None:
        self._schemes = {host: scheme for scheme, _, host in (each.partition("://") for each in origins)}
        self._any_port = self._schemes.get(LOOPBACK[1]) == "http"

    def origin(self, request: web.Request) -> str | None:
        """The address of the dashboard that the browser has used; None if it has none of this Host."""
        scheme = self._schemes.get(request.host)
        if scheme is None and self._any_port and request.host.partition(":")[0] in LOOPBACK:
            scheme = "http"
        return scheme and f"{scheme}://{request.host}"

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answers the request if it may, with headers for security."""
        try:
            response = self._refusal(request) or await handler(request)
        except web.HTTPException as error:
            error.headers.update(HEADERS)
            raise
        if not response.prepared:
            is_versioned = response.status == 200 and VERSIONED in request.path
            response.headers.update(HEADERS | (CACHED if is_versioned else {}))
        return response

    def _refusal(self, request: web.Request) -> web.Response | None:
        if request.path == HEALTH:  # the kubelet asks by the address of the pod
            return None
        own = self.origin(request)
        if own is None:
            known = ", ".join(self._schemes)
            return web.Response(status=403, text=f"This dashboard answers as {known} only.\n")
        given = request.headers.get("Origin")
        if given != own and (given is not None or request.method not in ("GET", "HEAD")):
            return web.Response(status=403, text="Requests of other pages are refused.\n")
        return None
