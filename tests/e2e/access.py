"""The API server and kubectl, as plain as the tests need them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import urllib3
from kubernetes import config

Object = dict[str, Any]
T = TypeVar("T")

JOBS = "/apis/horovodjob.dev/v1beta1"
MERGE_PATCH = "application/merge-patch+json"
# Each look may be a request to the API server, so what takes long is asked for less often.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 0.25
# Ends a wait that is hopeless. On a busy machine everything takes longer, so no test depends on its length.
DEADLINE_SECONDS = 900.0
REQUEST_SECONDS = 60


class ApiError(Exception):
    """The API server does not do it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


def wait_for(what: str, condition: Callable[[], T | None], seconds: float = DEADLINE_SECONDS) -> T:
    """The first true answer of `condition`. Raises AssertionError when there is none in time."""
    seconds = max(seconds, DEADLINE_SECONDS)
    begin = time.monotonic()
    while not (answer := condition()):
        waited = time.monotonic() - begin
        if waited > seconds:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        time.sleep(min(max(waited / 10, SHORTEST_PAUSE), LONGEST_PAUSE))
    return answer


class Api:
    """Requests to the API server of a kubeconfig; objects are dicts, and what is not there is None."""

    def __init__(self, kubeconfig: Path) -> None:
        self._client = config.new_client_from_config(str(kubeconfig))
        self._pool: urllib3.PoolManager = self._client.rest_client.pool_manager

    def _send(self, method: str, path: str, body: Object | None, content_type: str, **options: Any) -> Any:
        headers: dict[str, str] = {"Accept": "application/json", "Content-Type": content_type}
        for way in self._client.configuration.auth_settings().values():
            headers[way["key"]] = way["value"]
        data = json.dumps(body).encode() if body is not None else None
        url = f"{self._client.configuration.host}{path}"
        return self._pool.request(method, url, body=data, headers=headers, retries=False, **options)

    def request(
        self, method: str, path: str, body: Object | None = None, content_type: str = "application/json"
    ) -> Any:
        """The answer, as JSON. Raises Refused."""
        answer = self._send(method, path, body, content_type, timeout=REQUEST_SECONDS)
        if answer.status >= 400:
            try:
                message = json.loads(answer.data).get("message", "")
            except ValueError:
                message = answer.data.decode(errors="replace")
            raise ApiError(answer.status, message)
        return json.loads(answer.data)

    def get(self, path: str) -> Object | None:
        """An object or a list."""
        try:
            found: Object = self.request("GET", path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise
        return found

    def items(self, path: str) -> list[Object]:
        """The objects of a collection."""
        found = self.get(path) or {}
        return list(found.get("items") or ())

    def text(self, path: str) -> str:
        """The answer as text; nothing where there is none."""
        answer = self._send("GET", path, None, "application/json", timeout=REQUEST_SECONDS)
        return answer.data.decode(errors="replace") if answer.status < 400 else ""

    def lines(self, path: str, read_seconds: float) -> Iterator[str]:
        """The lines of an answer that goes on, until it ends or is silent for too long. Raises Refused."""
        timeout = urllib3.Timeout(connect=10, read=read_seconds)
        answer = self._send("GET", path, None, "application/json", timeout=timeout, preload_content=False)
        if answer.status >= 400:
            raise ApiError(answer.status, answer.read().decode(errors="replace"))
        rest = b""
        try:
            for chunk in answer.stream(65536):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (line.decode(errors="replace") for line in lines)
        finally:
            answer.release_conn()


@dataclass(frozen=True, slots=True)
class Kubectl:
    """The command line, for what a user does with it: apply, exec."""

    program: str
    kubeconfig: Path

    def __call__(self, *arguments: str, given: str | None = None, seconds: float = DEADLINE_SECONDS) -> str:
        """What it prints. Raises AssertionError with its error output."""
        done = subprocess.run(
            [self.program, *arguments],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=max(seconds, DEADLINE_SECONDS),
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
        )
        if done.returncode:
            raise AssertionError(
                f"kubectl {' '.join(arguments[:6])} ended with {done.returncode}: {done.stderr[-2000:]}"
            )
        return done.stdout
