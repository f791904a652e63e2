"""Training progress: rank 0 posts it from a real pod, with the token that the kubelet projects."""

from __future__ import annotations

import re

from e2e.access import wait_for
from e2e.namespace import Namespace

# Posts at its begin and at its end, and prints the responses.
PROGRAM = """
import json, os, time, urllib.error, urllib.request
rank = os.environ["OMPI_COMM_WORLD_RANK"]
if rank != "0":
    assert ("HOROVODJOB_PROGRESS_URL" in os.environ) == (rank == "1")  # the deputy of rank 0
    raise SystemExit
def post(progress):
    token = open(os.environ["HOROVODJOB_PROGRESS_TOKEN_FILE"]).read()
    report = {"attempt": int(os.environ["HOROVODJOB_ATTEMPT"]), "progress": progress, "metrics": {"loss": 1 - progress}}
    request = urllib.request.Request(os.environ["HOROVODJOB_PROGRESS_URL"], json.dumps(report).encode())
    request.add_header("Authorization", f"Bearer {token}")
    try:
        answer = urllib.request.urlopen(request, timeout=20).status
    except urllib.error.HTTPError as error:
        answer = error.code
    except OSError as error:
        answer = 0
    print("POST", progress, answer, flush=True)
post(0.25)
while not os.path.exists("/tmp/go"):
    time.sleep(0.2)
post(1.0)
"""


def posts(namespace: Namespace, job: str) -> list[tuple[float, int]]:
    """Progress and response of each post that rank 0 printed."""
    lines = (re.match(r"POST (\S+) (\d+)", line) for line in namespace.output(job))
    return [(float(found[1]), int(found[2])) for found in lines if found]


def test_rank_0_reports_its_progress_as_any_user(namespace: Namespace) -> None:
    """That of the image does in test_isolation.py; for one of a template, the kubelet sets another mode of the file."""
    user = {"securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000}}
    worker = {"replicas": 3, "template": {"spec": user}}
    namespace.apply(namespace.job("grouped", ["python3", "-c", PROGRAM], worker=worker))
    status = namespace.wait("grouped", "a report", lambda status: status.get("training"))
    assert (status["training"]["percent"], status["training"]["metrics"]) == ("25%", {"loss": 0.75})
    assert "25%" in namespace.kubectl("get", "hvj", "-n", namespace.name, "grouped", "--no-headers").split()
    wait_for("the answer", lambda: posts(namespace, "grouped") == [(0.25, 204)])
    namespace.release("grouped-worker-0")
    assert namespace.wait_phase("grouped", "Succeeded")["training"]["percent"] == "100%"
