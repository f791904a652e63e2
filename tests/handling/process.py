"""The operator as a process: started, asked, killed."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from api.client import Object, wait_for
from cluster.apiserver import free_ports


class Operator:
    """`python -m horovodjob_operator` with the rights of its service account."""

    def __init__(self, kubeconfig: Path, log: Path, **settings: str) -> None:
        self._kubeconfig, self._log, self._settings = kubeconfig, log, settings
        self._process: subprocess.Popen[bytes] | None = None
        self._read = 0
        self.port = self.progress_port = 0
        log.touch()

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> "Operator":
        """Starts the process and waits until it is ready."""
        self.port, self.progress_port = free_ports(2)
        own = {f"HOROVODJOB_OPERATOR_{name.upper()}": value for name, value in self._settings.items()}
        own |= {
            "HOROVODJOB_OPERATOR_HTTP_PORT": str(self.port),
            "HOROVODJOB_OPERATOR_PROGRESS_PORT": str(self.progress_port),
            "HOROVODJOB_OPERATOR_PROGRESS_URL": f"http://127.0.0.1:{self.progress_port}/progress",
            "KUBECONFIG": str(self._kubeconfig),
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", "--", sys.executable, "-m", "horovodjob_operator"],
                env=os.environ | own,
                stdout=log,
                stderr=log,
            )
        wait_for("the operator to be ready", lambda: self.answer("/readyz")[0] == 200)
        return self

    def kill(self) -> None:
        """Ends the process as a lost node would: at once, without a word."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def stop(self, seconds: float = 5) -> int:
        """Asks the process to end; its exit code."""
        assert self._process
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=seconds)

    def answer(self, path: str) -> tuple[int, str]:
        """Status and text of an answer; 0 where there is none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metrics(self) -> dict[str, float]:
        """The metrics by series: `name{label="value"}`."""
        lines = self.answer("/metrics")[1].splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}

    def requests(self) -> dict[str, float]:
        """How often each `verb resource` was asked of the API server."""
        pattern = re.compile(r'horovodjob_operator_api_requests_total\{code="(\w+)",resource="(\S+)",verb="(\w+)"\}')
        found = ((pattern.fullmatch(name), value) for name, value in self.metrics().items())
        counted: dict[str, float] = {}
        for match, value in found:
            if match:
                counted[f"{match[3]} {match[2]}"] = counted.get(f"{match[3]} {match[2]}", 0) + value
        return counted

    def news(self) -> list[Object]:
        """Lines of the log that were not read yet."""
        with self._log.open("rb") as log:
            log.seek(self._read)
            text = log.read().decode()
            self._read = log.tell()
        lines: list[Object] = []
        for line in text.splitlines():
            with contextlib.suppress(ValueError):
                lines.append(json.loads(line))
                continue
            lines.append({"level": "TEXT", "message": line})
        return lines
