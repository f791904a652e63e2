"""What must be true of the operator as a whole when all other tests have ended."""

from __future__ import annotations

import json

import pytest

from e2e.access import wait_for
from e2e.install import Operator
from e2e.namespace import PREFIX
from e2e.recorder import Recorder
from localcluster.settings import Cluster

# It comes after the tests of all workers.
pytestmark = pytest.mark.serial


def test_the_log_of_the_operator_is_json_without_tracebacks_or_forbidden_requests(operator: Operator) -> None:
    operator.catch_up()
    wait_for("the logs of all containers", lambda: not operator.unread())
    assert operator.lines
    for line in operator.lines:
        said = json.loads(line)
        assert {"time", "level", "message"} <= set(said) or said["level"] == "TEST", line
        assert "Traceback" not in line
        assert "403" not in said["message"].split(), line
        # An error in the log is a defect of the operator; what is wrong with jobs is in their conditions.
        assert said["level"] not in ("ERROR", "CRITICAL"), line


def test_no_request_of_the_operator_was_forbidden(local: Cluster, operator: Operator) -> None:
    """In the log of all requests since the cluster was started, also of those that the operator does not log."""
    own, refused = 0, []
    for log in local.log.glob("audit*.log"):
        with log.open() as lines:
            for line in lines:
                if "horovodjob-operator" in line:
                    event = json.loads(line)
                    # A request with a token that has ended has neither a user nor a decision.
                    by_operator = "horovodjob-operator" in event["user"].get("username", "")
                    own += by_operator
                    decision = event.get("annotations", {}).get("authorization.k8s.io/decision")
                    forbidden = decision == "forbid"
                    # `helm uninstall` deletes the rights, too, so the operator cannot release its Lease as it ends.
                    if by_operator and forbidden and "/leases/" not in event["requestURI"]:
                        refused.append((event["verb"], event["requestURI"]))
    assert own, "the audit log shows no request of the operator"
    assert not refused


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
