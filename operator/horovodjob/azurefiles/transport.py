"""Connections of the Azure SDK, with the proxies and certificates of the environment."""

from typing import Any
from urllib.parse import urlsplit

import requests
from azure.core.pipeline.transport import RequestsTransport

# Seconds, as the SDK's own transport has them.
TIMEOUTS = {"connection_timeout": 20, "read_timeout": 60}


def new_transport() -> RequestsTransport:
    """A transport that reads the environment once: for small files, that is a tenth of the time of each request."""
    session = _Session()
    transport = RequestsTransport(session=session, **TIMEOUTS)
    transport._init_session(session)  # as the transport does with a session of its own
    return transport


class _Session(requests.Session):
    def __init__(self) -> None:
        super().__init__()
        self._settings: dict[Any, dict[str, Any]] = {}

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        """The settings for a host as they were at its first request; the SDK gives no `proxies`."""
        key = (urlsplit(url)[:2], stream, verify, cert)
        if key not in self._settings:
            self._settings[key] = super().merge_environment_settings(url, proxies, stream, verify, cert)
        return {**self._settings[key], "proxies": dict(self._settings[key]["proxies"])}
