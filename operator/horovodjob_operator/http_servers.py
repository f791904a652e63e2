"""The HTTP servers of the process: health and metrics, and progress reports."""

from collections.abc import Callable

from aiohttp import web

from horovodjob_operator.controller.clock import now
from horovodjob_operator.controller.jobs.reporting_jobs import ReportingJobs
from horovodjob_operator.kube.metrics_authorization import MetricsAuthorization
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.token_review import TokenReviewer
from horovodjob_operator.metrics import REGISTRY
from horovodjob_operator.progress_reports import ProgressReports, start_server
from horovodjob_operator.servers.health import HealthServer
from horovodjob_operator.servers.tls import TlsPort, tls_context
from horovodjob_operator.settings import Settings


class HttpServers:
    """Both servers. `unhealthy` and `unready` return a sentence with the problem, if there is one.

    A replica that is not the leader must not write, so its reviews of tokens have `review_client`.
    """

    def __init__(
        self,
        settings: Settings,
        client: ApiClient,
        review_client: ApiClient,
        jobs: ReportingJobs,
        *,
        unhealthy: Callable[[], str],
        unready: Callable[[], str],
        is_leader: Callable[[], bool],
    ) -> None:
        self._settings, self._jobs = settings, jobs
        self._client, self._review_client = client, review_client
        self._unhealthy, self._unready, self._is_leader = unhealthy, unready, is_leader
        self._servers: list[HealthServer | web.BaseRunner] = []

    async def start(self) -> None:
        """Starts the servers. Raises OSError, and OperatorError without a valid TLS certificate."""
        settings = self._settings
        authorization = MetricsAuthorization(self._review_client) if settings.metrics_authorization else None
        tls_port = settings.metrics_tls_port
        health = HealthServer(
            settings.http_port,
            unhealthy=self._unhealthy,
            unready=self._unready,
            registry=REGISTRY,
            authorize=authorization.denial if authorization else None,
            tls=TlsPort(tls_port, tls_context(settings.metrics_tls_directory, now())) if tls_port else None,
        )
        await health.start()
        self._servers.append(health)
        if settings.progress_url:
            reports = ProgressReports(
                self._jobs,
                TokenReviewer(self._client),
                now,
                is_leader=lambda: self._is_leader() and not self._unready(),
            )
            self._servers.append(await start_server(settings.progress_port, reports))

    async def cleanup(self) -> None:
        """Ends the servers that have started."""
        for server in self._servers:
            await server.cleanup()
