"""How far a job is: its rank 0 posts it from a real pod, with the token that the kubelet made."""

from __future__ import annotations

import re
from datetime import datetime

from e2e.access import MERGE_PATCH, wait_for
from e2e.install import SYSTEM, Operator
from e2e.space import Space

SCALE = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/horovodjob-operator/scale"
# Posts once in a while until it is let go, and a last time when it ends; says how long each post took.
PROGRAM = """
import json, os, pathlib, time, urllib.error, urllib.request
if os.environ["OMPI_COMM_WORLD_RANK"] != "0":
    assert "HOROVODJOB_PROGRESS_URL" not in os.environ
    raise SystemExit
def post(progress):
    token = open(os.environ["HOROVODJOB_PROGRESS_TOKEN_FILE"]).read()
    report = {"attempt": int(os.environ["HOROVODJOB_ATTEMPT"]), "progress": progress, "metrics": {"loss": 1 - progress}}
    request = urllib.request.Request(os.environ["HOROVODJOB_PROGRESS_URL"], json.dumps(report).encode())
    request.add_header("Authorization", f"Bearer {token}")
    begin = time.time()
    try:
        answer = urllib.request.urlopen(request, timeout=2).status
    except urllib.error.HTTPError as error:
        answer = error.code
    except OSError as error:
        answer = 0
    print("POST", progress, answer, round(time.time() - begin, 2), begin, flush=True)
post(0.25)
while not os.path.exists("/tmp/go"):
    time.sleep(0.2)
post(1.0)
"""


def _posts(space: Space, job: str) -> list[tuple[float, int, float, float]]:
    """Progress, answer, seconds and time of each post that rank 0 told about."""
    lines = (re.match(r"POST (\S+) (\d+) (\S+) (\S+)", line) for line in space.output(job))
    return [(float(m[1]), int(m[2]), float(m[3]), float(m[4])) for m in lines if m]


def test_rank_0_tells_how_far_it_is_whoever_it_runs_as(space: Space) -> None:
    """The image's own user, and one of a template, whose files the kubelet gives other modes."""
    security = {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000}
    jobs = {"plain": {}, "grouped": {"template": {"spec": {"securityContext": security}}}}
    space.apply(
        *(space.job(name, ["python3", "-c", PROGRAM], worker={"replicas": 2} | worker) for name, worker in jobs.items())
    )
    for name in jobs:
        status = space.wait(name, "a report", lambda status: status.get("training"), 90)
        assert (status["training"]["percent"], status["training"]["metrics"]) == ("25%", {"loss": 0.75})
        versions = space.recorded_jobs.history[space.find(name)["metadata"]["uid"]]
        shown = next(version for version in versions if "training" in version["status"])
        (posted,) = wait_for("the post", lambda name=name: _posts(space, name))  # type: ignore[misc]
        written = max(datetime.fromisoformat(entry["time"]) for entry in shown["metadata"]["managedFields"])
        assert written.timestamp() - posted[3] <= 10
        assert posted[:2] == (0.25, 204)
        assert "25%" in space.kubectl("get", "hvj", "-n", space.name, name, "--no-headers").split()
        space.release(f"{name}-worker-0")
        status = space.wait_phase(name, "Succeeded", seconds=60)
        assert status["training"]["percent"] == "100%"


def test_a_job_goes_on_and_ends_while_the_operator_is_away(space: Space, operator: Operator) -> None:
    space.apply(space.job("alone", ["python3", "-c", PROGRAM], worker={"replicas": 2}))
    space.wait("alone", "a report", lambda status: status.get("training"), 90)
    space.api.request("PATCH", SCALE, {"spec": {"replicas": 0}}, MERGE_PATCH)
    try:
        wait_for("no operator", lambda: not operator.pods.now)
        space.release("alone-worker-0")
        wait_for(
            "the launcher to end", lambda: (space.pod("alone-launcher") or {})["status"]["phase"] == "Succeeded", 30
        )
        assert [answer for _, answer, _, _ in _posts(space, "alone")] == [204, 0]
        assert max(seconds for _, _, seconds, _ in _posts(space, "alone")) < 2.5
    finally:
        space.api.request("PATCH", SCALE, {"spec": {"replicas": 1}}, MERGE_PATCH)
        operator.running()
    status = space.wait_phase("alone", "Succeeded", seconds=60)
    assert status["training"]["percent"] == "25%", "what it told last is kept"
