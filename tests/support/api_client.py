"""A client of the API server: objects are dicts, an error is an exception with the server's message."""

import contextlib
import functools
import http.client
import json
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from kubernetes import client, config

from localcluster.binaries.cache import Binaries
from localcluster.progress import Progress
from localcluster.settings import cache_directory

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "manifests" / "base"
JOBS = "/apis/horovodjob.dev/v1beta1/namespaces/{}/horovodjobs"
CONTENT_TYPES = {"merge": "application/merge-patch+json", "json": "application/json-patch+json"}
Object = dict[str, Any]
T = TypeVar("T")
FORBIDDEN, INVALID = 403, 422
# A limit for failures only: no test depends on its length.
WAIT_SECONDS = 600.0
# Each poll costs the API server some milliseconds, so the interval grows.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 0.5
# The API server closes connections that are idle for 90 s, and a POST on a closed connection cannot be repeated.
IDLE_SECONDS = 45


class ApiError(Exception):
    """The API server rejected the request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status, self.message = status, message


class Api:
    """A connection to the API server of a kubeconfig, with the rights of its user; each thread has its own."""

    def __init__(self, kubeconfig: Path, user: str = "") -> None:
        """`user`: impersonates this user."""
        self.kubeconfig, self._user = kubeconfig, {"Impersonate-User": user} if user else {}
        self._access = client.Configuration()
        config.load_kube_config(str(kubeconfig), client_configuration=self._access)
        self.server: str = self._access.host
        address = urlsplit(self.server)
        self._address, self._prefix = address.netloc, address.path.rstrip("/")
        self._tls = ssl.create_default_context(cafile=self._access.ssl_ca_cert)
        if not self._access.verify_ssl:
            self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        if self._access.cert_file:
            self._tls.load_cert_chain(self._access.cert_file, self._access.key_file)
        self._threads = threading.local()

    @property
    def authority_file(self) -> Path:
        """The certificates of the authorities that the API server's certificate is from."""
        return Path(self._access.ssl_ca_cert)

    def get(self, path: str) -> Object:
        return self.request("GET", path)

    def find(self, path: str) -> Object | None:
        """The object, or None."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def items(self, path: str) -> list[Object]:
        """The objects of a collection; none if its kind is not served."""
        return list((self.find(path) or {}).get("items") or ())

    def create(self, path: str, body: Mapping[str, Any]) -> Object:
        return self.request("POST", path, body)

    def replace(self, path: str, body: Mapping[str, Any]) -> Object:
        return self.request("PUT", path, body)

    def patch(self, path: str, body: Any, kind: str = "merge") -> Object:
        return self.request("PATCH", path, body, CONTENT_TYPES[kind])

    def delete(self, path: str, body: Mapping[str, Any] | None = None) -> Object:
        return self.request("DELETE", path, body)

    def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Object:
        """The object in the response. Raises ApiError; a stale connection is reopened once."""
        status, text = self._send(method, path, body, content_type)
        answer: Object = json.loads(text) if text.startswith(b"{") else {"message": text.decode(errors="replace")}
        if status >= 400:
            raise ApiError(status, answer.get("message", ""))
        return answer

    def text(self, path: str) -> str:
        """The response as text, such as a log; empty if there is none."""
        status, text = self._send("GET", path, None, "application/json")
        return text.decode(errors="replace") if status < 400 else ""

    def lines(self, path: str, read_seconds: float) -> Iterator[str]:
        """The lines of a streamed response, until it ends or is idle for too long. Raises ApiError."""
        with contextlib.closing(self._new_connection(read_seconds)) as connection:
            connection.request("GET", f"{self._prefix}{path}", headers=self._headers())
            response = connection.getresponse()
            if response.status >= 400:
                raise ApiError(response.status, response.read().decode(errors="replace"))
            for line in response:
                yield line.decode(errors="replace").removesuffix("\n")

    def _send(self, method: str, path: str, body: Any, content_type: str) -> tuple[int, bytes]:
        """Status and body of the response."""
        data = None if body is None else json.dumps(body)
        headers = self._headers() | ({"Content-Type": content_type} if data else {})
        for last in (False, True):
            connection = self._connection()
            try:
                connection.request(method, f"{self._prefix}{path}", data, headers)
                response = connection.getresponse()
                return response.status, response.read()
            except (http.client.HTTPException, OSError):
                connection.close()
                if last or method == "POST":
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _headers(self) -> dict[str, str]:
        """What identifies the user, unless a certificate does: a token, which can be a new one."""
        return self._user | {way["key"]: way["value"] for way in self._access.auth_settings().values()}

    def watch(self, path: str, ended: threading.Event, gap: Callable[[str], None]) -> Iterator[Object]:
        """Yields the present objects and then every event until `ended`; an interrupted watch is resumed.

        `gap` is called when events may be missing.
        """
        version = ""
        while not ended.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                query = f"watch=1&allowWatchBookmarks=1&timeoutSeconds=20&resourceVersion={version}"
                connection = self._new_connection(25)
                connection.request("GET", f"{self._prefix}{path}?{query}", headers=self._headers())
                response = connection.getresponse()
                if response.status == 410:
                    version = ""
                    gap(f"{path}: the version is too old")
                if response.status != 200:  # an API server that has just started has not loaded the RBAC rules yet
                    raise OSError(response.status)
                for line in response:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        version = ""
                        gap(f"{path}: {event['object'].get('message')}")
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        yield event
                    if ended.is_set():
                        break
            ended.wait(0.1)

    def _connection(self) -> http.client.HTTPSConnection:
        if not hasattr(self._threads, "connection"):
            self._threads.connection = self._new_connection(60)
            self._threads.used_at = time.monotonic()
        connection: http.client.HTTPSConnection = self._threads.connection
        if time.monotonic() - self._threads.used_at > IDLE_SECONDS:
            connection.close()  # the next request reopens it
        self._threads.used_at = time.monotonic()
        return connection

    def _new_connection(self, seconds: float) -> http.client.HTTPSConnection:
        """A connection that waits so long for data."""
        return http.client.HTTPSConnection(self._address, context=self._tls, timeout=seconds)

    def kubectl(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Runs kubectl as the administrator."""
        command = [binary("kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)


@functools.cache
def binary(name: str) -> str:
    """Path of a program of the local cluster, which is built if it is missing."""
    binaries = Binaries(cache_directory())
    binaries.ensure(Progress(), (name,))
    return str(binaries.path(name))


def wait_for(what: str, condition: Callable[[], T | None], seconds: float = WAIT_SECONDS) -> T:
    """The first true result of `condition`. Raises AssertionError after the deadline."""
    begin = time.monotonic()
    while not (found := condition()):
        waited = time.monotonic() - begin
        assert waited < seconds, f"waited {seconds:.0f} s in vain for {what}"
        time.sleep(min(max(waited / 6, SHORTEST_PAUSE), LONGEST_PAUSE))
    return found


def install_definition(api: Api) -> None:
    """Installs the shipped CRD, and waits until jobs can be created and its admission policy is in effect."""
    done = api.kubectl("apply", "--server-side", "-f", str(BASE / "crd.yaml"))
    assert done.returncode == 0, done.stderr
    wait_for("the resource to be served", lambda: is_served(api, "/apis/horovodjob.dev/v1beta1/horovodjobs"))
    wait_for_admission_policy(api)


def wait_for_admission_policy(api: Api) -> None:
    """Waits until changes to running jobs are rejected: a policy takes effect with a delay."""
    jobs = JOBS.format("default")
    api.create(jobs, job("policy-probe"))
    wait_for("the admission policy", lambda: _is_frozen(api, f"{jobs}/policy-probe"))
    api.delete(f"{jobs}/policy-probe")


def _is_frozen(api: Api, path: str) -> bool:
    try:
        api.patch(f"{path}?dryRun=All", {"spec": {"image": "trainer:2"}})
    except ApiError as error:
        return error.status == FORBIDDEN
    return False


def clear(api: Api, namespace: str) -> None:
    """Deletes what tests of other namespaces would see. The namespace itself, which costs ten times as many requests,
    ends with the API server.
    """
    now = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
    for group in ("batch/v1 cronjobs", "batch/v1 jobs", "apps/v1 deployments", "horovodjob.dev/v1beta1 horovodjobs"):
        version, plural = group.split()
        with contextlib.suppress(ApiError):  # a test has removed the CRD
            api.delete(f"/apis/{version}/namespaces/{namespace}/{plural}", now)
    api.delete(f"/api/v1/namespaces/{namespace}/pods", now)


def machine_address() -> str:
    """An address of this machine other than loopback, which the API server does not proxy to."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


def own_address() -> str:
    """An address of the loopback interface on which no other process of the tests listens or connects.

    A free port of 127.0.0.1 can be in use when a process that takes seconds to start listens on it.
    """
    pid = os.getpid()
    return f"127.{64 + (pid >> 16)}.{pid >> 8 & 255}.{pid & 255}"


def is_served(api: Api, path: str) -> bool:
    """Whether these objects can be read: the storage of a new CRD is set up with a delay."""
    try:
        return bool(api.get(path))
    except ApiError as error:
        if error.status in (404, 429, 503):
            return False
        raise


def job(name: str = "train", **spec: Any) -> Object:
    """A small valid HorovodJob, with these fields of the spec."""
    wanted = {"image": "trainer:1", "command": ["python3", "train.py"], "worker": {"replicas": 2, "gpus": 0}} | spec
    return {
        "apiVersion": "horovodjob.dev/v1beta1",
        "kind": "HorovodJob",
        "metadata": {"name": name},
        "spec": {key: value for key, value in wanted.items() if value is not None},
    }
