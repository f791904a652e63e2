"""Invariants of the operator after all other tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.access import wait_for
from e2e.install import Operator
from e2e.namespace import PREFIX
from e2e.recorder import Recorder
from localcluster.settings import Cluster

# Runs after the tests of all workers.
pytestmark = pytest.mark.serial


def test_the_log_of_the_operator_is_json_without_tracebacks_or_forbidden_requests(operator: Operator) -> None:
    operator.catch_up()
    wait_for("the logs of all containers", lambda: not operator.unread())
    assert operator.lines
    for line in operator.lines:
        entry = json.loads(line)
        assert {"time", "level", "message"} <= set(entry) or entry["level"] == "TEST", line
        assert "Traceback" not in line
        assert "403" not in entry["message"].split(), line
        # An error in the log is a defect of the operator; problems of jobs are in their conditions.
        assert entry["level"] not in ("ERROR", "CRITICAL"), line


def test_no_request_of_the_operator_was_forbidden(local: Cluster) -> None:
    """Checks the audit log since the start of the cluster, which has all requests.

    `helm uninstall` deletes the rights before the pod of the operator ends: until then its requests are refused. Where
    Kueue is not installed, a new process looks once for Workloads, without a right to them.
    """
    own, refused = 0, []
    has_rights = True
    for log in sorted(local.log.glob("audit*.log")):
        with log.open() as lines:
            for line in lines:
                if "horovodjob-operator" in line:
                    event = json.loads(line)
                    about = event.get("objectRef", {})
                    if (about.get("resource"), about.get("name")) == ("clusterrolebindings", "horovodjob-operator"):
                        has_rights = event["verb"] != "delete"
                    # A request with an expired token has neither a user nor a decision.
                    by_operator = "horovodjob-operator" in event["user"].get("username", "")
                    own += by_operator
                    decision = event.get("annotations", {}).get("authorization.k8s.io/decision")
                    # An operator in one namespace, which has Roles, can lose those for its Lease.
                    is_excused = not has_rights or "/leases/" in event["requestURI"] or _looks_for_workloads(event)
                    if by_operator and decision == "forbid" and not is_excused:
                        refused.append((event["verb"], event["requestURI"]))
    assert own, "the audit log shows no request of the operator"
    assert not refused


def _looks_for_workloads(event: dict[str, Any]) -> bool:
    return (event["verb"], event.get("objectRef", {}).get("resource")) == ("list", "workloads")


def test_no_pod_outlives_its_job(jobs: Recorder, pods: Recorder) -> None:
    def left() -> list[str]:
        alive = {job["metadata"]["uid"] for job in list(jobs.now.values())}
        own = [pod for pod in list(pods.now.values()) if pod["metadata"]["namespace"].startswith(PREFIX)]
        return [
            pod["metadata"]["name"]
            for pod in own
            if not any(owner["uid"] in alive for owner in pod["metadata"].get("ownerReferences", ()))
        ]

    wait_for("no pod without its job", lambda: not left())
