"""Progress reports of rank 0: how they reach the status, and which are rejected."""

import contextlib
import json
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from support.api_client import Api, Object, wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.control_plane.watch_threads import Recorder
from support.job_driver import Job
from support.operator_process import Operator
from support.progress_client import (
    AUDIENCE,
    REPORT,
    expired_token,
    forged_token,
    post,
    post_until_reviewed,
    token_of,
    token_of_pod,
)

Submit = Callable[..., Job]
LOCKED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
FLOOD_SECONDS = 11
# Far more reports than the operator accepts, and not all that this machine can send.
REPORTS_PAUSE = 0.05
# A write is due ten seconds after the previous one; the rest is a margin for a busy machine.
WRITTEN_WITHIN = timedelta(seconds=60)
# The server ends a connection that is idle for five seconds; the rest, again.
BLOCKED_SECONDS = 60
DISCOVERY, BINDING = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "system:service-account-issuer-discovery"
SHOWN = {key: value for key, value in REPORT.items() if key != "attempt"} | {
    "percent": "13%",
    "history": [],
    "extremes": {},
}


def training(job: Job) -> Object:
    found: Object = job.status.get("training", {})
    return found


def series(operator: Operator, job: Job) -> dict[str, float]:
    """Metrics of the job's training."""
    label = f'{{name="{job.name}",namespace="{job.namespace}"}}'
    return {name.removesuffix(label): value for name, value in operator.metrics().items() if name.endswith(label)}


def status_writes(control_plane: OperatorControlPlane, job: Job) -> int:
    return control_plane.calls(job.namespace)["patch horovodjobs/status"]


def test_only_the_pods_of_rank_0_and_its_deputy_have_a_token_and_it_grants_no_api_access(
    submit_job: Submit, api: Api
) -> None:
    job = submit_job(worker={"replicas": 3, "gpus": 0})
    pods = job.wait_for_pods()
    for role, pod in pods.items():
        (container,) = pod["spec"]["containers"]
        names = {variable["name"] for variable in container["env"] if "PROGRESS" in variable["name"]}
        volumes = [volume for volume in pod["spec"]["volumes"] if "serviceAccountToken" in json.dumps(volume)]
        reports = role in ("worker-0", "worker-1")
        assert names == ({"HOROVODJOB_PROGRESS_URL", "HOROVODJOB_PROGRESS_TOKEN_FILE"} if reports else set())
        assert len(volumes) == reports
        assert pod["spec"]["automountServiceAccountToken"] is False
    token = pods["worker-0"]["spec"]["volumes"][-1]["projected"]["sources"][0]["serviceAccountToken"]
    assert (token["audience"], token["expirationSeconds"]) == (AUDIENCE, 600)
    done = api.kubectl(f"--token={token_of(job)}", "--username=x", "get", "pods")
    assert done.returncode != 0


def test_a_report_reaches_the_status_within_ten_seconds_and_the_last_one_stays(
    submit_job: Submit, operator: Operator, api: Api, control_plane: OperatorControlPlane
) -> None:
    job = submit_job().advance_to("Running")
    assert series(operator, job) == {"horovodjob_training_gpus": 0}
    token = token_of(job)
    posted_at = datetime.now(UTC)
    assert post(operator, token) == 204
    wait_for("the report", lambda: training(job))
    written_at = control_plane.times(job.namespace, "patch horovodjobs/status")[-1]
    assert written_at - posted_at <= WRITTEN_WITHIN
    assert training(job) == SHOWN
    assert "13%" in api.kubectl("get", "hvj", "-n", job.namespace, job.name).stdout.split()
    expected = {"progress_ratio": 0.13, "samples_per_second": 5120, "loss": REPORT["metrics"]["loss"]}
    expected["eta_timestamp_seconds"] = datetime.fromisoformat(REPORT["eta"]).timestamp()
    expected = {f"horovodjob_training_{name}": value for name, value in (expected | {"gpus": 0}).items()}
    wait_for("the metrics", lambda: series(operator, job) == expected)
    # The last report is written with the end of the job, whenever that is.
    assert post(operator, token, progress=1.0, eta=None, epoch=25, metrics={"loss": 0.5}) == 204
    job.end("launcher", 0)
    status = job.wait("Succeeded")
    assert (status["training"]["percent"], status["training"]["epoch"]) == ("100%", 25)
    assert status["training"]["metrics"] == {"loss": 0.5}
    assert "eta" not in status["training"]
    assert series(operator, job) == {}
    assert post(operator, token) == 403
    assert training(job)["percent"] == "100%"


MALFORMED = (b"", b"[" * 4000, b'{"progress": 0.5}', b'{"attempt": 1, "progress": NaN}')
LARGE = (b" " * 70_000, [b" " * 25_000] * 3)


def test_a_report_that_is_not_from_rank_0_of_the_job_is_rejected_and_counted(
    submit_job: Submit, operator: Operator, control_plane: OperatorControlPlane
) -> None:
    job, other = submit_job(), submit_job("other")
    for one in (job, other):
        one.advance_to("Running")
    before, asked, writes = operator.reports(), operator.requests(), status_writes(control_plane, job)
    token, others = token_of(job), token_of(other)
    codes = {
        "malformed": [post(operator, token, body) for body in MALFORMED],
        "too_large": [post(operator, token, body) for body in LARGE],
        "unauthenticated": [
            post(operator, ""),
            post(operator, "garbage"),
            post(operator, "a.b.c"),
            post(operator, token_of(job, audience="https://kubernetes.default.svc.cluster.local")),
            post(operator, forged_token(others)),
            post(operator, forged_token(token, aud=[AUDIENCE, "other"])),
            post_until_reviewed(operator, expired_token(token, control_plane)),
        ],
        "foreign": [
            post(operator, token_of(job, "launcher")),
            post(operator, unrelated_pod_token(job)),
        ],
        "stale": [post_until_reviewed(operator, others, attempt=2)],
    }
    wanted = {"malformed": 400, "too_large": 413, "unauthenticated": 401, "foreign": 403, "stale": 403}
    assert {name: set(found) for name, found in codes.items()} == {name: {code} for name, code in wanted.items()}
    grown = {name: number - before.get(name, 0) for name, number in operator.reports().items()}
    assert {name: grown[name] for name in codes} == {name: len(found) for name, found in codes.items()}
    assert post(operator, token, address="127.0.0.3") == 204, "no forged token blocks a genuine one"
    # Only tokens that the API server signed, for a pod with rank 0, are reviewed.
    assert operator.requests()["create tokenreviews"] - asked.get("create tokenreviews", 0) == 3
    assert training(other) == {}
    wait_for("the only accepted report", lambda: training(job))
    # The API server writes its log after its answer.
    wait_for("the write in the log", lambda: status_writes(control_plane, job) > writes)
    assert status_writes(control_plane, job) == writes + 1
    lines = [line["message"] for line in operator.new_log_lines() if line.get("logger") == "horovodjob.progress"]
    assert len(lines) <= 1
    assert not any(part in line for line in lines for part in token.split("."))


def unrelated_pod_token(job: Job) -> str:
    """A token of a pod with the labels of worker 0 that belongs to no job."""
    labels = job.pods()["worker-0"]["metadata"]["labels"] | {"horovodjob.dev/job": "none"}
    container = {"name": "worker", "image": "trainer:1", "securityContext": LOCKED}
    security = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "none-worker-0", "labels": labels},
        "spec": {"containers": [container], "securityContext": security},
    }
    made = job.api.create(job.pods_path, body)["metadata"]
    return token_of_pod(job, made["name"], made["uid"])


def test_a_rank_0_that_is_not_heard_any_more_is_unknown_progress_until_it_reports(
    submit_job: Submit, operator: Operator
) -> None:
    job, other = submit_job(), submit_job("other")
    for one in (job, other):
        one.advance_to("Running")
    token = token_of(job)
    usage = {"seconds": {"steps": 1.0}, "steps": 10}

    def report(within: float) -> int:
        """As the watch of rank 0 reports: without metrics, and with the time until its next report."""
        return post(
            operator,
            token,
            b'{"attempt": 1, "stall": null, "usage": %s, "nextWithin": %s}'
            % (json.dumps(usage).encode(), str(within).encode()),
        )

    assert (post(operator, token), report(2)) == (204, 204)
    post(operator, token_of(other), stall=None, nextWithin=600)  # this process is not what is cut off
    message = job.wait_for_condition("Progressing", status="Unknown", reason="NoReports")
    cause = "its process, its pod or the network to the operator has failed"
    assert re.fullmatch(rf"no report from rank 0 \(worker 0, node \S+\) since \d\d:\d\d:\d\dZ: {cause}", message), (
        message
    )
    assert (job.status["phase"], job.status["attempt"]) == ("Running", 1)
    assert report(0) == 204  # the training has ended, and the program continues
    job.wait_for_condition("Progressing", status="True", reason="StepsCompleted")


def test_each_attempt_and_each_resumed_job_has_its_own_progress(submit_job: Submit, operator: Operator) -> None:
    job = submit_job().advance_to("Running")
    token = token_of(job)
    assert post(operator, token) == 204
    wait_for("the report", lambda: training(job))
    # A restarted operator keeps the reported progress and accepts the next report.
    operator.kill()
    operator.start()
    assert wait_for("a token review", lambda: post(operator, token, progress=0.2) == 204)
    wait_for("the next report", lambda: training(job)["percent"] == "20%")
    job.end("launcher", 1)
    job.wait("Restarting")
    assert post(operator, token, progress=0.3) == 403
    job.skip_backoff()
    wait_for(
        "the next launcher", lambda: "launcher" in job.pods() and not job.pods()["launcher"]["status"].get("podIP")
    )
    job.schedule()
    job.run()
    assert job.wait("Running")["training"]["percent"] == "20%", "the second attempt has not reported yet"
    assert post(operator, token, progress=0.3) == 403, "a rank of the first attempt"
    assert post(operator, token, progress=0.25, attempt=2) == 204
    job.suspend()
    assert job.wait("Suspended")["training"]["percent"] == "25%"
    wait_for("the pods to be deleted", lambda: job.pods() == {})
    assert post(operator, token, attempt=2) == 403, "the pod is deleted"
    job.suspend(False)
    job.advance_to("Running")
    assert "training" not in job.status
    assert post(operator, token, attempt=3) == 403, "the pod with that name has another UID"


def test_a_flood_of_reports_causes_one_write_in_ten_seconds_and_one_token_review(
    submit_job: Submit, operator: Operator, control_plane: OperatorControlPlane, recorder: Recorder
) -> None:
    job, other = submit_job(), submit_job("other")
    for one in (job, other):
        one.advance_to("Running")
    token, garbage = token_of(job), [forged_token(token_of(other), jti=str(number)) for number in range(20)]
    wait_for("counts", lambda: job.status["workersReady"] == "2/2")
    asked, writes = operator.requests().get("create tokenreviews", 0), status_writes(control_plane, job)
    begin = time.monotonic()
    codes: Counter[int] = Counter()
    while (passed := time.monotonic() - begin) < FLOOD_SECONDS:
        stall = {"since": "2026-11-26T14:32:10Z"} if int(passed * 20) % 2 else None
        codes[post(operator, token, progress=passed / 100)] += 1
        codes[post(operator, token, stall=stall)] += 1
        post(operator, garbage[int(passed * 100) % 20])
        assert operator.get("/healthz")[0] == 200
        time.sleep(REPORTS_PAUSE)
    assert set(codes) <= {0, 204, 429}, "rate limited, or not connected"
    written = status_writes(control_plane, job) - writes
    passed = time.monotonic() - begin
    assert codes[204] <= 10 * (passed / 10 + 1)
    assert 1 <= written <= passed / 10 + 1
    assert operator.requests()["create tokenreviews"] - asked <= 1 + passed / 2 + 1
    versions = [version["status"] for version in recorder.versions[job.uid] if "training" in version["status"]]
    assert len(versions) == len({version["training"]["progress"] for version in versions})


@pytest.fixture
def operator_without_keys(api: Api, operator: Operator, operator_access: Path) -> Iterator[Operator]:
    """An operator without the public keys of tokens: only the API server can check their signatures."""
    operator.kill()
    binding = api.get(f"{DISCOVERY}/{BINDING}")
    api.delete(f"{DISCOVERY}/{BINDING}")
    read = (f"--kubeconfig={operator_access}", "get", "--raw", "/openid/v1/jwks")
    wait_for("no right on the keys", lambda: "forbidden" in api.kubectl(*read).stderr)
    yield operator.start()
    operator.kill()
    metadata = {"name": BINDING, "labels": binding["metadata"]["labels"]}
    api.create(DISCOVERY, {"metadata": metadata, "roleRef": binding["roleRef"], "subjects": binding["subjects"]})


def test_without_the_keys_a_forged_token_blocks_only_its_own_address(
    submit_job: Submit, operator_without_keys: Operator
) -> None:
    job = submit_job().advance_to("Running")
    token = token_of(job)
    assert [post(operator_without_keys, forged_token(token, jti=str(number))) for number in range(2)] == [401, 429]
    assert post(operator_without_keys, token, address="127.0.0.2") == 204


def test_idle_connections_block_only_their_own_address(submit_job: Submit, operator: Operator) -> None:
    job = submit_job().advance_to("Running")
    token = token_of(job)
    head = f"POST /progress HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 99\r\n\r\n"
    idle: list[socket.socket] = []

    def connect(address: str, number: int) -> None:
        to = ("127.0.0.1", operator.progress_port)
        idle.extend(socket.create_connection(to, source_address=(address, 0)) for _ in range(number))

    def is_blocked() -> bool:
        for connection in idle:  # on a slow machine, the first connection is closed before the last one is open
            connection.close()
        idle.clear()
        connect("127.0.0.1", 300)
        with contextlib.suppress(ConnectionError):
            idle[0].sendall(head.encode() + b"{")
            idle[1].sendall(head.encode()[:50])
        return post(operator, token) == 0

    wait_for("all connections of the address to be in use", is_blocked)
    assert post(operator, token, address="127.0.0.2") == 204
    for last in range(20):
        connect(f"127.0.1.{last + 1}", 30)
    assert post(operator, token, address="127.0.0.3") == 204, "if all are in use, the oldest is closed"
    assert operator.get("/healthz")[0] == 200
    begin = time.monotonic()
    wait_for("a free connection", lambda: post(operator, token) == 204)
    assert time.monotonic() - begin < BLOCKED_SECONDS
    for connection in idle:
        connection.settimeout(5)
        with contextlib.suppress(ConnectionError):
            assert connection.recv(100) == b""
        connection.close()
