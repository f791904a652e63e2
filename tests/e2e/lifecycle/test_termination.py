"""Jobs that are terminated by their user or by their deadline. All run side by side."""

from __future__ import annotations

import pytest

from e2e.access import JOBS, MERGE_PATCH, wait_for
from e2e.namespace import Namespace

# The log of the launcher contains the output of a rank that receives SIGTERM.
SAVES = "trap 'echo \"$HOSTNAME saves\"; exit 143' TERM; echo runs; while :; do sleep 0.1; done"
COMMANDS = {"terminated": SAVES, "overdue": SAVES, "deaf": "trap '' TERM; echo runs; sleep 3600"}


@pytest.fixture(scope="module")
def namespace(module_namespace: Namespace) -> Namespace:
    """The namespace, with all jobs in it: their ranks ran, and then each job was terminated."""
    limited = {"runPolicy": {"activeDeadlineSeconds": 3600}}
    module_namespace.apply(
        *(
            module_namespace.job(name, command, worker={"replicas": 2}, **({} if name == "terminated" else limited))
            for name, command in COMMANDS.items()
        )
    )
    for name in COMMANDS:
        wait_for(f"both ranks of {name}", lambda name=name: module_namespace.output(name) == ["runs"] * 2)  # type: ignore[misc]
        module_namespace.wait_phase(name, "Running")
    module_namespace.change("terminated", {"runPolicy": {"terminate": True}})
    for name in ("overdue", "deaf"):
        # A deadline of seconds would pass before the ranks run on a busy machine.
        path = f"{JOBS}/namespaces/{module_namespace.name}/horovodjobs/{name}/status"
        module_namespace.api.request("PATCH", path, {"status": {"startTime": "2020-01-01T00:00:00Z"}}, MERGE_PATCH)
    return module_namespace


@pytest.mark.parametrize(
    ("name", "reason"), [("terminated", "Terminated"), ("overdue", "DeadlineExceeded"), ("deaf", "DeadlineExceeded")]
)
def test_a_terminated_job_lets_its_ranks_save_and_keeps_its_status_and_log(
    namespace: Namespace, name: str, reason: str
) -> None:
    status = namespace.wait_phase(name, "Failed")
    assert namespace.condition(name, "Failed")["reason"] == reason
    assert (status["restarts"], status["attempt"]) == (0, 1)
    assert "Terminating" in namespace.phases(name)
    wait_for("the workers to be deleted", lambda: list(namespace.pods(name)) == [f"{name}-launcher"])
    lines = namespace.output(name)
    assert lines.count("runs") == 2
    saved = [] if name == "deaf" else [f"{name}-worker-{index} saves" for index in (0, 1)]
    assert sorted(line for line in lines if line.endswith(" saves")) == saved
