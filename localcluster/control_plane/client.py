"""A client of the API server for the cluster itself; a call of kubectl would take half a second."""

import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from localcluster.errors import ClusterError

TIMEOUT_SECONDS = 60
READY_SECONDS = 5
WATCH_SECONDS = 300


class Client:
    """Sends requests as the administrator; raises ClusterError if the API server refuses one or does not answer."""

    def __init__(self, address: str, port: int, pki: Path) -> None:
        self.address, self.port = address, port
        self.tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self.tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")

    def is_ready(self) -> bool:
        """Whether the API server is ready."""
        with contextlib.suppress(ClusterError):
            # Without etcd, the API server answers this request only after a long time.
            return self._request("GET", "/readyz", None, "", timeout=READY_SECONDS)[0] == http.HTTPStatus.OK
        return False

    def get(self, path: str) -> dict[str, Any] | None:
        """The object at `path`; None if it does not exist."""
        status, body = self._request("GET", path, None, "")
        if status == http.HTTPStatus.NOT_FOUND:
            return None
        return self._object(path, status, body)

    def watch(self, path: str) -> Iterator[dict[str, Any]]:
        """The events of the watch at `path`, until the API server ends the watch."""
        connection = self._connection(WATCH_SECONDS + TIMEOUT_SECONDS)
        try:
            connection.request("GET", f"{path}&timeoutSeconds={WATCH_SECONDS}")
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                self._object(path, response.status, response.read())
            for line in response:
                yield json.loads(line)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ClusterError(f"the watch of {path} was interrupted: {error}") from error
        finally:
            connection.close()

    def apply(self, path: str, wanted: dict[str, Any], *, dry_run: bool = False) -> None:
        """Create or change an object by server-side apply; a dry run only validates it."""
        query = "?fieldManager=local-cluster&force=true" + ("&dryRun=All" if dry_run else "")
        body = json.dumps(wanted)
        self._object(path, *self._request("PATCH", path + query, body, "application/apply-patch+yaml"))

    def merge(self, path: str, change: dict[str, Any]) -> None:
        """Change fields by a merge patch; None removes a field."""
        body = json.dumps(change)
        self._object(path, *self._request("PATCH", path, body, "application/merge-patch+json"))

    def delete(self, path: str) -> None:
        """Delete the object at `path`, if it exists."""
        status, body = self._request("DELETE", path, None, "")
        if status != http.HTTPStatus.NOT_FOUND:
            self._object(path, status, body)

    def _object(self, path: str, status: int, body: bytes) -> dict[str, Any]:
        if status >= http.HTTPStatus.BAD_REQUEST:
            raise ClusterError(f"the API server answered {status} to {path}: {body.decode(errors='replace')[:500]}")
        answer: dict[str, Any] = json.loads(body)
        return answer

    def _connection(self, timeout: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.address, self.port, timeout=timeout, context=self.tls)

    def _request(
        self, method: str, path: str, body: str | None, content_type: str, *, timeout: float = TIMEOUT_SECONDS
    ) -> tuple[int, bytes]:
        connection = self._connection(timeout)
        try:
            connection.request(method, path, body, {"Content-Type": content_type} if body else {})
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ClusterError(f"no answer from the API server at {self.address}:{self.port}: {error}") from error
        finally:
            connection.close()
