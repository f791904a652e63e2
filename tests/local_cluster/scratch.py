"""A cluster beside the default one, for what may be done to no other: the tests of the local cluster itself use it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import localcluster
from localcluster.binaries.cache import Binaries
from localcluster.settings import COMPONENTS, Cluster

CLUSTER = Cluster("test")
COMMAND = [sys.executable, str(Path(localcluster.__file__).parent), "--name", CLUSTER.name]
# Only a hopeless wait ends here: a busy machine takes its time.
DEADLINE_SECONDS = 900


def attempt(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """A command of the cluster, whatever it ends with."""
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)


def command(*arguments: str) -> str:
    done = attempt(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wait_until_healthy() -> None:
    """Waits until `status` finds nothing missing."""
    assert eventually(lambda: attempt("status").returncode == 0), attempt("status").stdout


def wait_until_reported(problem: str) -> None:
    """Waits until `status` fails and names the problem."""

    def reported() -> bool:
        done = attempt("status")
        return done.returncode == 1 and f"- {problem}" in done.stdout

    assert eventually(reported), attempt("status").stdout


def kubectl(*arguments: str, stdin: str = "", check: bool = True) -> str:
    kubectl = Binaries(CLUSTER.cache).path("kubectl")
    done = subprocess.run(
        [str(kubectl), f"--kubeconfig={CLUSTER.kubeconfig}", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout + done.stderr


def eventually(condition: Callable[[], bool], *, seconds: float = DEADLINE_SECONDS) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def pod(name: str, labels: dict[str, str] | None = None, **container: Any) -> str:
    image = Binaries(CLUSTER.cache).image_reference("pause")
    containers = [{"name": "main", "image": image, "imagePullPolicy": "Never", **container}]
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {"containers": containers, "terminationGracePeriodSeconds": 0},
        }
    )


def is_running(name: str) -> bool:
    return kubectl("get", "pod", name, "--output=jsonpath={.status.phase}") == "Running"


def process_ids() -> dict[str, int]:
    return {name: int((CLUSTER.run / f"{name}.pid").read_text().split()[0]) for name in COMPONENTS}


def kill(*components: str) -> None:
    """Kills components, and waits until they have ended: `up` would take them for running."""
    pids = process_ids()
    for name in components:
        os.kill(pids[name], signal.SIGKILL)
    assert eventually(lambda: not any(runs(pids[name]) for name in components))


def runs(pid: int) -> bool:
    """Whether a process is there and has not ended: nobody may have asked for its exit status yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False
