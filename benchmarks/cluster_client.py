"""What the benchmarks need of a cluster: kubectl, objects, and when each of them was first seen to be so."""

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.api_client import Api, Object  # noqa: E402

CACHE = Path(os.environ.get("HOROVODJOB_CACHE") or Path.home() / ".cache" / "horovodjob")
KUBECTL = str(CACHE / "bin" / "kubectl") if (CACHE / "bin" / "kubectl").exists() else "kubectl"
# Which local cluster, should there be several.
CLUSTER_NAME = os.environ.get("CLUSTER_NAME", "main")
CLUSTER_STATE = CACHE / ("cluster" if CLUSTER_NAME == "main" else f"cluster-{CLUSTER_NAME}")
os.environ.setdefault("KUBECONFIG", str(CLUSTER_STATE / "kubeconfig"))
AUDIT_LOG = CLUSTER_STATE / "log" / "audit.log"
OPERATOR_NAMESPACE = "horovodjob-system"
OPERATOR_USER = f"system:serviceaccount:{OPERATOR_NAMESPACE}:horovodjob-operator"


def kubectl(*arguments: str, stdin: str | None = None) -> str:
    """Output of kubectl; ends the benchmark with its words if it fails."""
    done = subprocess.run([KUBECTL, *arguments], input=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"kubectl {' '.join(arguments[:4])}: {done.stderr.strip()}")
    return done.stdout


def apply(*objects: dict[str, Any]) -> None:
    """Creates the objects with one call."""
    kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


def trainer_image() -> str:
    """The trainer image of this tree, in the cluster."""
    names = subprocess.run(
        [sys.executable, str(ROOT / "localcluster/images"), "names"], capture_output=True, text=True, check=True
    )
    return str(json.loads(names.stdout)["trainer"]["image"])


def fresh_namespace(name: str) -> None:
    """An empty namespace at Pod Security restricted."""
    kubectl("delete", "namespace", name, "--ignore-not-found", "--wait=true")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    wait_until(lambda: "default" in kubectl("get", "serviceaccount", "-n", name, "-o", "name"), 30)


def wait_until(true: Callable[[], object], seconds: float) -> None:
    """Polls; ends the benchmark when it takes too long."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            sys.exit(f"gave up after {seconds:.0f} s")
        time.sleep(0.05)


def administrator() -> Api:
    """A connection with the rights of the kubeconfig: a request does not take the start of a process."""
    return Api(Path(os.environ["KUBECONFIG"]))


def create(api: Api, one: Object) -> None:
    """Creates an object in its namespace."""
    api.create(_collection(one), one)


def annotate(api: Api, one: Object, **annotations: str) -> None:
    """Adds annotations to an object that is there."""
    api.patch(f"{_collection(one)}/{one['metadata']['name']}", {"metadata": {"annotations": annotations}})


def _collection(one: dict[str, Any]) -> str:
    group = "api" if one["apiVersion"] == "v1" else "apis"
    return f"/{group}/{one['apiVersion']}/namespaces/{one['metadata']['namespace']}/{one['kind'].lower()}s"


class Watch:
    """Follows the objects of one kind in a namespace; remembers when a fact was first true."""

    def __init__(self, kind: str, namespace: str) -> None:
        command = [KUBECTL, "get", kind, "-n", namespace, "--watch", "--output-watch-events", "-o", "json"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.objects: dict[str, dict[str, Any]] = {}
        self.changed = threading.Condition()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        decoder, text = json.JSONDecoder(), ""
        while chunk := os.read(self._process.stdout.fileno(), 1 << 16).decode():
            text += chunk
            while text.strip():
                try:
                    event, end = decoder.raw_decode(text.lstrip())
                except ValueError:
                    break
                text = text.lstrip()[end:]
                with self.changed:
                    one = event["object"]
                    if event["type"] == "DELETED":
                        self.objects.pop(one["metadata"]["name"], None)
                    else:
                        self.objects[one["metadata"]["name"]] = one
                    self.changed.notify_all()

    def when(self, true: Callable[[dict[str, dict[str, Any]]], object], seconds: float = 600) -> float:
        """The moment at which the objects were first seen to fulfil the condition."""
        with self.changed:
            if not self.changed.wait_for(lambda: bool(true(self.objects)), seconds):
                sys.exit(f"gave up after {seconds:.0f} s")
            return time.time()

    def close(self) -> None:
        """Ends the watch."""
        self._process.terminate()
        self._process.wait()


def log_moment(lines: Iterable[str], words: str) -> float:
    """When the first line with these words was printed, from a log with timestamps."""
    from datetime import datetime

    for line in lines:
        stamp, _, text = line.partition(" ")
        if words in text:
            whole, _, fraction = stamp.rstrip("Z").partition(".")
            return datetime.fromisoformat(whole + "+00:00").timestamp() + float(f"0.{fraction or 0}")
    sys.exit(f"the log has no line with {words!r}")


def median(values: Sequence[float]) -> float:
    """The middle one."""
    return statistics.median(values)
