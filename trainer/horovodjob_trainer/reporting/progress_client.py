"""The client for progress reports to the operator. A job never waits for a report and never fails because of one."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

URL_VARIABLE, TOKEN_VARIABLE = "HOROVODJOB_PROGRESS_URL", "HOROVODJOB_PROGRESS_TOKEN_FILE"
INTERVAL_SECONDS, TIMEOUT_SECONDS, CLOSE_TIMEOUT_SECONDS = 5.0, 2.0, 4.0
STANDBY, TRIES = 503, 4  # the Service of the operator also routes to the standby replica


class ProgressClient:
    """Posts the newest report in a separate thread, at most one every five seconds."""

    def __init__(self, url: str, token_file: Path, log: Callable[[str], None]) -> None:
        self.url, self.token_file, self.log = url, token_file, log
        self.changed = threading.Condition()
        self.report: Mapping[str, Any] | None = None
        self.is_closing = self.has_warned = False
        self.thread = threading.Thread(target=self._work, name="progress", daemon=True)
        self.thread.start()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], log: Callable[[str], None]) -> "ProgressClient | None":
        """A client if the operator has set the URL and the token, else None."""
        if not cls.is_configured(environment):
            return None
        return cls(environment[URL_VARIABLE], Path(environment[TOKEN_VARIABLE]), log)

    @staticmethod
    def is_configured(environment: Mapping[str, str]) -> bool:
        """Whether the operator has set the URL and the token."""
        return bool(environment.get(URL_VARIABLE) and environment.get(TOKEN_VARIABLE))

    def post(self, report: Mapping[str, Any]) -> None:
        """Queue the report. It replaces a report that is still in the queue."""
        with self.changed:
            self.report = report
            self.changed.notify()

    def close(self) -> None:
        """Post the report in the queue and end the thread, within a few seconds."""
        with self.changed:
            self.is_closing = True
            self.changed.notify()
        self.thread.join(CLOSE_TIMEOUT_SECONDS)

    def _work(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.is_closing or self.report is not None)
                report, self.report = self.report, None
                if report is None:
                    return
            self._send(json.dumps(report).encode())
            with self.changed:
                self.changed.wait_for(lambda: self.is_closing, INTERVAL_SECONDS)

    def _send(self, body: bytes) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        for _ in range(TRIES):
            try:
                self._request(body, deadline - time.monotonic())
                return
            except urllib.error.HTTPError as error:
                with error:
                    if error.code == STANDBY and time.monotonic() < deadline - 0.1:
                        continue
                self._warn(f"the operator responded with {error.code} {error.reason}")
                return
            except (OSError, ValueError) as error:  # URLError and timeouts are OSErrors
                self._warn(" ".join(str(getattr(error, "reason", None) or error).split()))
                return

    def _request(self, body: bytes, seconds: float) -> None:
        token = self.token_file.read_text().strip()  # the kubelet renews it
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Connection": "close"}
        request = urllib.request.Request(self.url, body, headers, method="POST")
        with _direct.open(request, timeout=max(seconds, 0.1)):
            pass

    def _warn(self, reason: str) -> None:
        if not self.has_warned and not self.is_closing:  # at the end of an attempt, the next one may have started
            self.has_warned = True
            self.log(f"Cannot report progress to the operator; training continues: {reason}")


# Requests from a pod to the operator must not use the proxy for external addresses.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
