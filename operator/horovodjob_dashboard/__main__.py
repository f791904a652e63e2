"""The process of the dashboard in a cluster: it has no rights, and uses those of each viewer."""

import argparse
import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp.http_exceptions import HttpProcessingError

from horovodjob.azurefiles.credentials import Options
from horovodjob_dashboard.access_guard import AccessGuard
from horovodjob_dashboard.application import application
from horovodjob_dashboard.page_settings import LinkTemplate, PageSettings, Price
from horovodjob_dashboard.pages import Pages
from horovodjob_dashboard.server import run
from horovodjob_dashboard.token_access import ApiServer, TokenAccess
from horovodjob_dashboard.viewer import REVIEW_SECONDS, Feeds

CA_FILE = "/etc/horovodjob/kubernetes/ca.crt"


def main() -> None:
    """Serves the dashboard until SIGTERM or SIGINT."""
    options = _options()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("aiohttp.server").addFilter(_without_request_text)
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(_serve(options))


async def _serve(options: argparse.Namespace) -> None:
    task = asyncio.current_task()
    assert task
    for signal_ in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_, task.cancel)
    guard, feeds = AccessGuard(options.url), Feeds(options.review_seconds)
    api_server = ApiServer(options.server, options.certificate_authority)
    storage = Options(uses_environment=False, networks=tuple(options.storage_network))
    access = TokenAccess(
        api_server, guard, feeds, cluster=options.cluster, header=options.token_header, storage=storage
    )
    pages = Pages(settings=options.settings, has_sessions=not options.token_header)
    made = application(access, pages, middlewares=[guard.check], public=access.routes())
    with socket.create_server(("", options.port)) as listener:
        port = listener.getsockname()[1]
        await run(made, listener, [access, feeds], lambda: logging.info("the dashboard listens on port %d", port))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m horovodjob_dashboard", description=__doc__)
    parser.add_argument("--port", type=int, default=8080, help="port of all addresses; 0 is a free one")
    parser.add_argument(
        "--url",
        type=_origin,
        action="append",
        required=True,
        help="address in browsers, such as https://jobs.example.com; http://localhost: each port of a port-forward",
    )
    parser.add_argument("--token-header", default="", help="header in which a proxy sends the token of each viewer")
    parser.add_argument(
        "--storage-network",
        type=ipaddress.ip_network,
        action="append",
        default=[],
        help="network with private endpoints of storage accounts, such as 10.1.2.0/24; others are not connected to",
    )
    parser.add_argument(
        "--link",
        type=_parsed(LinkTemplate.parse),
        action="append",
        default=[],
        metavar="TITLE=ADDRESS",
        help="link of each job, such as Grafana=https://grafana.example.com/d/horovodjob-jobs?var-name={name}",
    )
    parser.add_argument(
        "--gpu-hour-price", type=_parsed(Price.parse), help="price of a GPU hour on the pages, such as '2.90 EUR'"
    )
    parser.add_argument(
        "--spot-gpu-hour-price", type=_parsed(Price.parse), help="that of jobs with spec.spot, such as '0.90 EUR'"
    )
    parser.add_argument("--cluster", default="", help="name of the cluster on the pages")
    parser.add_argument(
        "--review-seconds", type=float, default=REVIEW_SECONDS, help="time between two reviews of a viewer's rights"
    )
    parser.add_argument("--server", default=_service(), help="address of the API server")
    parser.add_argument("--certificate-authority", default=CA_FILE, help="certificates that verify the API server")
    options = parser.parse_args()
    if not options.server:
        parser.error("not in a pod: name the API server with --server")
    if not Path(options.certificate_authority).is_file():
        parser.error(f"--certificate-authority: there is no file {options.certificate_authority}")
    try:
        options.settings = PageSettings(options.link, options.gpu_hour_price, options.spot_gpu_hour_price)
    except ValueError as error:
        parser.error(str(error))
    return options


def _parsed(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """A type of argparse, which prints the sentence of the error."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def _origin(url: str) -> str:
    scheme, separator, host = url.rstrip("/").partition("://")
    if scheme not in ("http", "https") or not separator or not host or "/" in host:
        raise argparse.ArgumentTypeError(f"{url} is not http:// or https:// with a host name and nothing else")
    return f"{scheme}://{host.lower()}"


def _service() -> str:
    """The API server as each pod finds it in its environment; empty outside of pods."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    return host and f"https://{f'[{host}]' if ':' in host else host}:{port}"


def _without_request_text(record: logging.LogRecord) -> bool:
    """Leaves out what the parser quotes of a malformed request: it may be a token."""
    if record.exc_info and isinstance(record.exc_info[1], HttpProcessingError):
        record.exc_info = None
        record.msg += ": it is malformed"
    return True


if __name__ == "__main__":
    main()
