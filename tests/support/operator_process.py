"""The operator as a process."""

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

from localcluster.control_plane.standalone import free_ports
from support import fork_client
from support.api_client import WAIT_SECONDS, Object, wait_for
from support.forked_python import lasting_fork_server

# Levels that fail a test; TEXT is a line that is not JSON.
FORBIDDEN_LEVELS = ("ERROR", "CRITICAL", "TEXT")
PORT_ATTEMPTS = 5
OPERATOR = "import os; from horovodjob_operator.__main__ import main; os._exit(main())"
STARTED: list["Operator"] = []
UNVERIFIED = ssl.create_default_context()
UNVERIFIED.check_hostname, UNVERIFIED.verify_mode = False, ssl.CERT_NONE


class ForkedProcess:
    """An operator that does not spend 2 s on its imports, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(lasting_fork_server("horovodjob_operator.__main__"))
        with open(os.devnull) as nothing, log.open("ab") as output:
            streams = (nothing.fileno(), output.fileno(), output.fileno())
            self.pid = fork_client.send_request(self._connection, ["-c", OPERATOR], environment, streams)
        self._exit_code: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._exit_code is None:
                status = fork_client.receive_number(self._connection, socket.MSG_DONTWAIT)
                self._exit_code = os.waitstatus_to_exitcode(status)
        return self._exit_code

    def wait(self, timeout: float = WAIT_SECONDS) -> int:
        """The exit code, when it has ended."""
        wait_for("the end of the operator", lambda: self.poll() is not None, timeout)
        return int(self.poll() or 0)

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            if self.poll() is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)


class Operator:
    """The operator as a process, with the rights of its service account: forked, or `python -m horovodjob_operator` if
    packages in `source` replace the installed ones, for example with those of another release.

    With the setting `metrics_authorization`, its metrics are served over HTTPS, as the manifests have it.
    """

    def __init__(self, kubeconfig: Path, log: Path, source: Path | None = None, **settings: str) -> None:
        self._kubeconfig, self._log, self._source, self._settings = kubeconfig, log, source, settings
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._read = self._checked = 0
        self._end_is_known = True
        self.port = self.progress_port = self.tls_port = 0
        log.touch()
        STARTED.append(self)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process ID of the process that was started last."""
        assert self._process
        return int(self._process.pid)

    def start(self) -> "Operator":
        """Starts the process and waits until it is ready. Retries with other ports if one is in use."""
        for _ in range(PORT_ATTEMPTS):
            begin = self._log.stat().st_size
            self._spawn(*free_ports(3))
            wait_for("the operator to be ready", lambda: self.get("/readyz")[0] == 200 or not self.is_running)
            if self.is_running or b"address already in use" not in self._log.read_bytes()[begin:]:
                break
            self._checked = self._read = self._log.stat().st_size
        assert self.is_running, self._log.read_text()[-2000:]
        return self

    def restart(self) -> None:
        """Kills the process and starts the next one, on any ports, and does not wait until it is ready."""
        self.kill()
        self._spawn()

    def _spawn(self, port: int = 0, progress_port: int = 0, tls_port: int = 0) -> None:
        self.port, self.progress_port, self.tls_port = port, progress_port, tls_port
        self._end_is_known = False
        own = {f"HOROVODJOB_OPERATOR_{name.upper()}": value for name, value in self._settings.items()}
        own |= {
            "HOROVODJOB_OPERATOR_HTTP_PORT": str(self.port),
            "HOROVODJOB_OPERATOR_PROGRESS_PORT": str(self.progress_port),
            "HOROVODJOB_OPERATOR_PROGRESS_URL": f"http://127.0.0.1:{self.progress_port}/progress",
            "KUBECONFIG": str(self._kubeconfig),
        }
        if "metrics_authorization" in self._settings:
            own["HOROVODJOB_OPERATOR_METRICS_TLS_PORT"] = str(self.tls_port)
        if self._source is None:
            self._process = ForkedProcess(os.environ | own, self._log)
            return
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", "--", sys.executable, "-m", "horovodjob_operator"],
                env=os.environ | own | {"PYTHONPATH": str(self._source)},
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """Kills the process with SIGKILL, as the loss of its node would."""
        if self._process:
            self._end_is_known = self._end_is_known or self.is_running
            self._process.kill()
            self._process.wait()

    def stop(self) -> int:
        """Sends SIGTERM and returns the exit code."""
        assert self._process
        self._end_is_known = self.is_running
        self._process.send_signal(signal.SIGTERM)
        return int(self._process.wait(timeout=WAIT_SECONDS))

    def wait_for_exit(self) -> list[str]:
        """Waits until the process exits by itself, and returns and clears its errors."""
        wait_for("the operator to exit", lambda: not self.is_running)
        errors = self.errors()
        self._end_is_known = True
        return errors

    def send(self, number: signal.Signals) -> None:
        """Sends a signal: between SIGSTOP and SIGCONT the process is paused."""
        assert self._process
        self._process.send_signal(number)

    def get(self, path: str, token: str = "", *, seconds: float = 60) -> tuple[int, str]:
        """Status code and text of the response; 0 without a response in this time."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        over_tls = path == "/metrics" and "metrics_authorization" in self._settings
        address = f"https://127.0.0.1:{self.tls_port}" if over_tls else f"http://127.0.0.1:{self.port}"
        request = urllib.request.Request(f"{address}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=seconds, context=UNVERIFIED) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metrics(self) -> dict[str, float]:
        """The metrics by series: `name{label="value"}`."""
        status, text = self.get("/metrics")
        assert status == 200, f"no metrics: {status} {text}"
        lines = text.splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}

    @property
    def is_leader(self) -> bool:
        return self.metrics()["horovodjob_operator_leader"] == 1

    def jobs(self, namespace: str) -> dict[str, float]:
        """Jobs of a namespace by phase, as the metrics count them."""
        return self.samples("horovodjob_jobs", "phase", namespace=namespace)

    def reports(self) -> dict[str, float]:
        """Progress reports by result, without zeros."""
        counts = self.samples("horovodjob_operator_progress_reports_total", "result")
        return {result: count for result, count in counts.items() if count}

    def samples(self, metric: str, label: str, **others: str) -> dict[str, float]:
        """The samples of a metric by one of its labels, filtered by the other labels."""
        found: dict[str, float] = {}
        for series, value in self.metrics().items():
            name, _, rest = series.partition("{")
            labels = dict(re.findall(r'(\w+)="([^"]*)"', rest))
            if name == metric and labels.items() >= others.items():
                found[labels[label]] = value
        return found

    def requests(self) -> dict[str, float]:
        """The number of API requests by `verb resource`."""
        pattern = re.compile(r'horovodjob_operator_api_requests_total\{code="(\w+)",resource="(\S+)",verb="(\w+)"\}')
        found = ((pattern.fullmatch(name), value) for name, value in self.metrics().items())
        counted: dict[str, float] = {}
        for match, value in found:
            if match:
                counted[f"{match[3]} {match[2]}"] = counted.get(f"{match[3]} {match[2]}", 0) + value
        return counted

    def new_log_lines(self) -> list[Object]:
        """Log lines since the last call."""
        lines, self._read = self._lines(self._read)
        return lines

    def errors(self) -> list[str]:
        """Errors since the last call: an unexpected exit, an error in the log, or a line that is not JSON."""
        lines, self._checked = self._lines(self._checked)
        errors = [f"{line['level']}: {line['message']}" for line in lines if line["level"] in FORBIDDEN_LEVELS]
        has_exited = self._process is not None and not self.is_running and not self._end_is_known
        self._end_is_known = self._end_is_known or has_exited  # Reported once, not by each test that follows.
        return [*errors, *([f"{self._log.name}: the process exited unexpectedly"] if has_exited else [])]

    def _lines(self, begin: int) -> tuple[list[Object], int]:
        """The complete lines of the log after a position, and the position after them."""
        with self._log.open("rb") as log:
            log.seek(begin)
            text = log.read()
        text = text[: text.rfind(b"\n") + 1] if self.is_running else text
        lines: list[Object] = []
        for line in text.decode().splitlines():
            with contextlib.suppress(ValueError):
                lines.append(json.loads(line))
                continue
            lines.append({"level": "TEXT", "message": line})
        return lines, begin + len(text)
