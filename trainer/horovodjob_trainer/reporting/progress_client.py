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
MAX_REPORT_BYTES = 65536
MOST_ANSWER_BYTES = 600
INTERVAL_SECONDS, TIMEOUT_SECONDS, CLOSE_TIMEOUT_SECONDS = 5.0, 2.0, 4.0
FAILED = "Cannot report progress to the operator; training continues"
CHANGED = "The operator changed metrics of the progress report"
BUSY = 429
STANDBY, TRIES = 503, 4  # the Service of the operator also routes to the standby replica


class ProgressClient:
    """Posts the newest report in a separate thread, at most one every five seconds."""

    def __init__(self, url: str, token_file: Path, log: Callable[[str], None]) -> None:
        self.url, self.token_file, self.log = url, token_file, log
        self.changed = threading.Condition()
        self.report: Mapping[str, Any] | None = None
        self.is_closing = False
        self.warned: set[str] = set()
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

    def deliver(self, report: Mapping[str, Any]) -> bool:
        """Post a report at once, after `close`; whether the operator has taken it, or does not want it any more."""
        return self._send(_body(report))

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
            self._send(_body(report))
            with self.changed:
                self.changed.wait_for(lambda: self.is_closing, INTERVAL_SECONDS)

    def _send(self, body: bytes) -> bool:
        """Whether another try is pointless."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        for _ in range(TRIES):
            try:
                if changes := self._request(body, deadline - time.monotonic()):
                    self._warn(CHANGED, changes)
                return True
            except urllib.error.HTTPError as error:
                with error:
                    if error.code == STANDBY and time.monotonic() < deadline - 0.1:
                        continue
                    answer = _sentence(error)
                reason = f"the operator responded with {error.code} {error.reason}"
                self._warn(FAILED, f"{reason}{answer and ': '}{answer}")
                return error.code not in (BUSY, STANDBY)
            except (OSError, ValueError) as error:  # URLError and timeouts are OSErrors
                self._warn(FAILED, " ".join(str(getattr(error, "reason", None) or error).split()))
                return False
        return False

    def _request(self, body: bytes, seconds: float) -> str:
        """What the operator answers to a report that it accepts: nothing, unless it changed the report."""
        token = self.token_file.read_text().strip()  # the kubelet renews it
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Connection": "close"}
        request = urllib.request.Request(self.url, body, headers, method="POST")
        with _direct.open(request, timeout=max(seconds, 0.1)) as response:
            return _sentence(response)

    def _warn(self, what: str, reason: str) -> None:
        if what not in self.warned and not self.is_closing:  # at the end of an attempt, the next one may have started
            self.warned.add(what)
            self.log(f"{what}: {reason}")


def _body(report: Mapping[str, Any]) -> bytes:
    """The report as JSON that the operator takes: of a long history, the newest epochs that fit."""
    history = list(report.get("history") or ())
    while len(body := json.dumps(report).encode()) > MAX_REPORT_BYTES and history:
        del history[: 1 + len(history) // 4]
        report = {**report, "history": history}
    return body


def _sentence(response: Any) -> str:
    """The text of an answer, on one line."""
    try:
        text: str = response.read(MOST_ANSWER_BYTES).decode(errors="replace")
    except OSError:
        return ""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Makes a redirect an error: the token is for the operator."""

    def redirect_request(self, *_: object) -> None:
        return None


# Requests from a pod to the operator must not use the proxy for external addresses.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)
