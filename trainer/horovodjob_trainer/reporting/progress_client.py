"""Tells the operator how far the run is; a job never waits for it and never fails because of it."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

URL_VARIABLE, TOKEN_VARIABLE = "HOROVODJOB_PROGRESS_URL", "HOROVODJOB_PROGRESS_TOKEN_FILE"
INTERVAL_SECONDS, TIMEOUT_SECONDS, LAST_SECONDS = 5.0, 2.0, 4.0
STANDBY, TRIES = 503, 4  # behind one address stand the leading operator and another


class Poster:
    """Posts the newest report from a thread of its own, at most one in five seconds."""

    def __init__(self, url: str, token_file: Path, say: Callable[[str], None]) -> None:
        self.url, self.token_file, self.say = url, token_file, say
        self.changed = threading.Condition()
        self.report: Mapping[str, Any] | None = None
        self.closing = self.complained = False
        self.thread = threading.Thread(target=self._work, name="progress", daemon=True)
        self.thread.start()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], say: Callable[[str], None]) -> "Poster | None":
        """A poster where an operator wants to know, else nothing."""
        url, token_file = environment.get(URL_VARIABLE), environment.get(TOKEN_VARIABLE)
        return cls(url, Path(token_file), say) if url and token_file else None

    def post(self, report: Mapping[str, Any]) -> None:
        """Hands over the report to be posted in its turn, in the place of one that still waits."""
        with self.changed:
            self.report = report
            self.changed.notify()

    def close(self) -> None:
        """Posts what still waits and ends, within a few seconds."""
        with self.changed:
            self.closing = True
            self.changed.notify()
        self.thread.join(LAST_SECONDS)

    def _work(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.closing or self.report is not None)
                report, self.report = self.report, None
                if report is None:
                    return
            self._send(json.dumps(report).encode())
            with self.changed:
                self.changed.wait_for(lambda: self.closing, INTERVAL_SECONDS)

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
                self._complain(f"the operator answers {error.code} {error.reason}")
                return
            except (OSError, ValueError) as error:  # URLError and time-outs are OSErrors
                self._complain(" ".join(str(getattr(error, "reason", None) or error).split()))
                return

    def _request(self, body: bytes, seconds: float) -> None:
        token = self.token_file.read_text().strip()  # the kubelet renews it
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Connection": "close"}
        request = urllib.request.Request(self.url, body, headers, method="POST")
        with _direct.open(request, timeout=max(seconds, 0.1)):
            pass

    def _complain(self, reason: str) -> None:
        if not self.complained and not self.closing:  # at the end of an attempt the next one may have begun
            self.complained = True
            self.say(f"Progress cannot be reported to the operator, training goes on: {reason}")


# A proxy for the outside world has no business between a pod and its operator.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
