"""The dashboard as an application: its pages with the viewer of each request, and errors as pages."""

import logging
from collections.abc import Iterable
from typing import Protocol

from aiohttp import web
from aiohttp.typedefs import Middleware

from horovodjob.client.cluster import kube
from horovodjob.client.errors import ClientError, NotFound, translated
from horovodjob_dashboard.access_guard import Handler
from horovodjob_dashboard.event_streams import EventStreams
from horovodjob_dashboard.operator_state import OperatorState
from horovodjob_dashboard.page_session import PageNeeded, loader
from horovodjob_dashboard.pages import STATIC, VIEWER, Pages
from horovodjob_dashboard.viewer import NamespaceNeeded, SignedOut, Viewer
from horovodjob_dashboard.views.cluster import ClusterView
from horovodjob_dashboard.views.comparison import ComparisonView
from horovodjob_dashboard.views.job import JobView
from horovodjob_dashboard.views.jobs import JobsView
from horovodjob_dashboard.views.logs import LogsView
from horovodjob_dashboard.views.usage import UsageView

UNREADABLE = (
    "The dashboard cannot show what the API server has here ({}: its log has the place): see `kubectl get hvj -o yaml`."
)
log = logging.getLogger(__name__)


class Access(Protocol):
    """How requests get their viewer."""

    async def viewer(self, request: web.Request) -> Viewer:
        """The viewer whose rights the request has. Raises SignedOut."""

    def forget(self, request: web.Request) -> None:
        """Ends the session of the request, whose token the API server no longer accepts."""


class _Requests:
    """What all requests have in common."""

    def __init__(self, access: Access, pages: Pages) -> None:
        self._access, self._pages = access, pages

    def with_viewer(self, handler: Handler) -> Handler:
        """The handler with its viewer, in whose name `kube` sends requests to the API server."""

        async def handle(request: web.Request) -> web.StreamResponse:
            request[VIEWER] = viewer = await self._access.viewer(request)
            with kube.using(viewer.client):
                return await handler(request)

        return handle

    @web.middleware
    async def errors_as_pages(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """An error as a page with its sentence: the API server's, if it refused something."""
        try:
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            is_unknown = error.status in (404, 405)
            sentence = f"There is no page {request.path}." if is_unknown else error.text or error.reason
            return self._message(request, sentence, error.status)
        except PageNeeded:
            if request.method in ("GET", "HEAD"):
                return loader()
            return self._message(request, "This request is of no page of the dashboard.", 403)
        except SignedOut as error:
            return self._sign_in(request, str(error))
        except NamespaceNeeded as error:
            return self._pages.page(request, "namespace.html", {"sentence": str(error)}, 403)
        except Exception as error:
            found = error if isinstance(error, ClientError) else translated(error)
            if found is None:
                log.exception("%s %s", request.method, request.path)
                return self._message(request, UNREADABLE.format(type(error).__name__), 500, is_final=True)
            status = 404 if isinstance(found, NotFound) else getattr(error, "status", 0) or 502
            if status == 401:
                self._access.forget(request)
                return self._sign_in(request, f"{found}.")
            return self._message(request, str(found), status)

    def _message(self, request: web.Request, sentence: str, status: int, *, is_final: bool = False) -> web.Response:
        # The answer to a button remains until it was read.
        is_tried_again = request.method == "GET" and (status >= 500 or status == 429) and not is_final
        values = {"sentence": sentence, "is_tried_again": is_tried_again}
        return self._pages.page(request, "message.html", values, status)

    def _sign_in(self, request: web.Request, sentence: str) -> web.Response:
        template = "sign_in.html" if self._pages.has_sessions else "message.html"
        target = request.path_qs if request.method == "GET" else f"{self._pages.root}/"
        values = {"sentence": sentence, "target": target, "is_tried_again": False}
        return self._pages.page(request, template, values, 401)


def application(
    access: Access,
    pages: Pages,
    *,
    middlewares: Iterable[Middleware] = (),
    public: Iterable[web.AbstractRouteDef] = (),
) -> web.Application:
    """The pages of one cluster. The middlewares precede all others; `public` are addresses for everybody."""
    requests, streams, operator = _Requests(access, pages), EventStreams(), OperatorState()
    made = web.Application(middlewares=[*middlewares, requests.errors_as_pages])
    made.add_routes([*public, web.static("/static", STATIC)])
    views = (
        JobsView(pages, streams, operator),
        JobView(pages, operator),
        LogsView(streams),
        ComparisonView(pages, streams),
        ClusterView(pages, streams, operator),
        UsageView(pages, streams),
    )
    for view in views:
        for route in view.routes():
            made.router.add_route(route.method, route.path, requests.with_viewer(route.handler))
    return made
