"""Servers on addresses of the loopback interface: a Git server, a registry of charts, and the page of a release."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

CHART_CONFIG = "application/vnd.cncf.helm.config.v1+json"
CHART_CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers without a line in the log."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        """Logs nothing."""

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        """Sends an answer; names of headers have `_` in the place of `-`."""
        self.send_response(status)
        for name, value in {**headers, "Content_Length": str(len(body))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class Server:
    """An HTTP server that ends with the process."""

    def __init__(self, handler: type[Handler], address: str) -> None:
        self._server = http.server.ThreadingHTTPServer((address, 0), handler)
        self._server.daemon_threads = True
        self.address = f"{address}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()


class GitHandler(Handler):
    """Serves each Git repository of this machine at its path, by Git's own server program."""

    def _serve(self) -> None:
        path, _, query = self.path.partition("?")
        environment = {
            **os.environ,
            "GIT_PROJECT_ROOT": "/",
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=environment, capture_output=True, check=True
        ).stdout
        head, _, content = done.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = int(headers.pop("Status", "200 OK").split()[0])
        self.reply(status, content, Content_Type=headers["Content-Type"], Cache_Control="no-cache")

    do_GET = do_POST = _serve


class Registry(Server):
    """An OCI registry of charts: what `helm push` and `helm install` need of one."""

    def __init__(self, address: str) -> None:
        self._blobs: dict[str, bytes] = {}
        self._tags: dict[str, dict[str, str]] = {}
        """The digest of each manifest by repository and tag."""
        registry = self

        class RegistryHandler(Handler):
            def _serve(self) -> None:
                registry.serve(self)

            def _receive(self) -> None:
                registry.receive(self)

            do_GET = do_HEAD = _serve
            do_POST = do_PUT = _receive

        super().__init__(RegistryHandler, address)

    def push(self, helm: str, chart: Path, directory: Path) -> None:
        """Packages a chart and adds it below `charts/`."""
        package = subprocess.run(
            [helm, "package", str(chart), "--destination", str(directory)], capture_output=True, text=True, check=True
        ).stdout.strip()
        self.add(chart.name, Path(package.rpartition(": ")[2]))

    def add(self, chart: str, package: Path) -> None:
        """Adds the package of a chart below `charts/`, as `helm push` does."""
        content = package.read_bytes()
        version = package.name.removesuffix(".tgz").removeprefix(f"{chart}-")
        config = json.dumps({"name": chart, "version": version}).encode()
        layers = [self._descriptor(CHART_CONTENT, content)]
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": self._descriptor(CHART_CONFIG, config)}
        digest = self._descriptor(MANIFEST, json.dumps({**manifest, "layers": layers}).encode())["digest"]
        self._tags.setdefault(f"charts/{chart}", {})[version] = digest

    def _descriptor(self, media_type: str, content: bytes) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self._blobs[digest] = content
        return {"mediaType": media_type, "digest": digest, "size": len(content)}

    def serve(self, request: Handler) -> None:
        """Answers a request of the distribution API."""
        path = request.path.partition("?")[0].removeprefix("/v2/")
        if not path:
            return request.reply(200, b"{}")
        if path.endswith("/tags/list"):
            name = path.removesuffix("/tags/list")
            return request.reply(200, json.dumps({"name": name, "tags": list(self._tags.get(name, ()))}).encode())
        name, kind, reference = path.rsplit("/", 2)
        digest = self._tags.get(name, {}).get(reference, reference)
        if digest not in self._blobs:
            return request.reply(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}')
        media_type = MANIFEST if kind == "manifests" else "application/octet-stream"
        return request.reply(200, self._blobs[digest], Content_Type=media_type, Docker_Content_Digest=digest)

    def receive(self, request: Handler) -> None:
        """Stores a blob, for which a client first asks for an address, or a manifest with its tag."""
        path = request.path.partition("?")[0]
        content = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        if request.command == "POST":
            request.reply(202, b"", Location=f"{path.rstrip('/')}/1")
            return
        digest = self._descriptor("", content)["digest"]
        name, kind, reference = path.removeprefix("/v2/").rsplit("/", 2)
        if kind == "manifests":
            self._tags.setdefault(name, {})[reference] = digest
        request.reply(201, b"", Location=f"/v2/{name}/{kind}/{digest}", Docker_Content_Digest=digest)


class ReleasePage(Server):
    """The files of a folder by their names, as the page of a release has them; below it is nothing else."""

    def __init__(self, address: str, folder: Path) -> None:
        class PageHandler(Handler):
            def do_GET(self) -> None:
                file = folder / self.path.rpartition("/")[2]
                if not file.is_file():
                    self.reply(404, b"")
                else:
                    self.send_response(200)
                    self.send_header("Content-Length", str(file.stat().st_size))
                    self.end_headers()
                    with file.open("rb") as content:
                        shutil.copyfileobj(content, self.wfile)

        super().__init__(PageHandler, address)
