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

from cluster.binaries import Binaries
from cluster.settings import COMPONENTS, Cluster

CLUSTER = Cluster("test")
COMMAND = [sys.executable, str(Path(__file__).parent), "--name", CLUSTER.name]


def command(*arguments: str) -> str:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def kubectl(*arguments: str, stdin: str = "", check: bool = True) -> str:
    kubectl = Binaries(CLUSTER.cache).path("kubectl")
    done = subprocess.run(
        [str(kubectl), f"--kubeconfig={CLUSTER.kubeconfig}", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout + done.stderr


def eventually(condition: Callable[[], bool], *, seconds: float = 60) -> bool:
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
    pids = process_ids()
    for name in components:
        os.kill(pids[name], signal.SIGKILL)
