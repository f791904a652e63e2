"""No client follows a redirect: a credential never leaves the host that it was sent to."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import aiohttp
import kopf
import pytest

from horovodjob.azurefiles.credentials import Account
from horovodjob.azurefiles.errors import FilesError
from horovodjob.azurefiles.share import Share
from horovodjob.client.cluster import exec as pod_exec
from horovodjob.client.cluster import kube
from horovodjob.client.jobs.container_log import open_log
from horovodjob_operator.errors import Unavailable
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_trainer.reporting.progress_client import ProgressClient
from support.api_client import wait_for


class Site:
    """A server that sends each request to another one, or the one that must get none."""

    def __init__(self, target: str = "") -> None:
        self.requests: list[dict[str, str]] = []
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                requests.append({"path": self.path, **self.headers})
                body = b'{"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []}'
                self.send_response(302 if target else 200)
                if target:
                    scheme = "ws" if "Upgrade" in self.headers else "http"
                    self.send_header("Location", scheme + target.removeprefix("http") + self.path)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_HEAD = do_POST = do_PUT = _answer

            def log_message(self, *_: Any) -> None:
                """Is silent."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def elsewhere() -> Iterator[Site]:
    """The target of the redirects."""
    site = Site()
    yield site
    assert site.requests == []
    site.server.shutdown()


@pytest.fixture
def site(elsewhere: Site) -> Iterator[Site]:
    """Answers with redirects."""
    site = Site(elsewhere.url)
    yield site
    assert site.requests
    site.server.shutdown()


@pytest.fixture
def kubeconfig(site: Site, tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig with the site as the API server."""
    path = tmp_path / "kubeconfig"
    config = {
        "clusters": [{"name": "c", "cluster": {"server": site.url}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **config}))
    kube.choose(str(path), None)
    yield path
    kube.choose(None, None)


def test_the_client_of_shares_follows_none(site: Site) -> None:
    share = Share(Account("acc", f"{site.url}/acc", "the given SAS", sas="sv=1&sig=secret"), "myshare")
    for request in (share.check, lambda: share.read("f", 0, 10), lambda: share.entries("d"), lambda: share.state("f")):
        with pytest.raises(FilesError, match="another address, which is not followed"):
            request()


def test_the_client_of_the_api_server_and_a_command_in_a_pod_follow_none(kubeconfig: Path) -> None:
    from kubernetes.client import ApiException

    with pytest.raises(ApiException) as raised:
        kube.core().list_namespaced_pod("n")
    assert raised.value.status == 302
    pod = {"metadata": {"name": "p", "namespace": "n", "labels": {"horovodjob.dev/role": "worker"}}}
    with pytest.raises(ApiException) as raised:
        open_log(pod)
    assert raised.value.status == 302
    with pytest.raises(ApiException):
        pod_exec.output(pod, ["true"])


async def test_the_operator_follows_none(site: Site) -> None:
    client = ApiClient(kopf.ConnectionInfo(server=site.url, token="secret"), limit=2)
    with pytest.raises(Unavailable, match="redirect"):
        await client.request("GET", "/api/v1/pods")
    kopfs = client.new_session()
    with pytest.raises(aiohttp.ClientError, match="redirect"):
        await kopfs.get(f"{site.url}/api")
    await kopfs.close()
    await client.aclose()


def test_the_progress_client_of_a_pod_follows_none(site: Site, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    logged: list[str] = []
    client = ProgressClient(site.url, token, logged.append)
    client.post({"epoch": 1})
    wait_for("the warning", lambda: logged)
    assert "302" in logged[0]


def test_the_client_of_azure_resource_manager_follows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from horovodjob.client.cluster import aks

    monkeypatch.setattr(aks, "credential", object)
    client = aks.client("11111111-0000-4000-8000-000000000001")
    assert client._config.redirect_policy.allow is False
