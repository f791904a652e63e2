"""An error that repeats is in the status of the job, and leaves it when the job is reconciled again."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.api_client import Api, Object, wait_for
from support.control_plane.watch_threads import Recorder
from support.faults.fault_proxy import NO_FAULT, Fault, FaultProxy, Request
from support.job_driver import submit
from support.operator_process import Operator


@pytest.fixture
def operator(proxy: FaultProxy, namespace: str, tmp_path: Path) -> Iterator[Operator]:
    """An operator behind the proxy."""
    log = tmp_path / "log"
    operator = Operator(proxy.kubeconfig, log, namespaces=namespace)
    operator.start()
    yield operator
    operator.kill()
    proxy.close()
    print(log.read_text())  # shown if the test fails


def ready(body: Object) -> dict[str, str]:
    """The condition Ready of this version of a job."""
    conditions = body.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "Ready"), {})


@pytest.mark.usefixtures("operator")
def test_an_error_that_repeats_is_in_the_status_until_it_ends(
    api: Api, namespace: str, proxy: FaultProxy, recorder: Recorder
) -> None:
    tries = itertools.count(1)
    tried = 0

    def fail_hosts(request: Request) -> Fault:
        nonlocal tried
        if request.method != "PATCH" or "/pods/" not in request.path:
            return NO_FAULT
        tried = next(tries)
        return Fault(status=500)

    proxy.fault = fail_hosts
    job = submit(api, namespace)
    job.advance_to("Starting").run_workers()
    wait_for("the error", lambda: ready(job.get()).get("reason") == "ReconcileError")
    assert "500" in ready(job.get())["message"]
    assert "keeps trying" in ready(job.get())["message"]
    before = tried
    wait_for("three more tries", lambda: tried >= before + 3)
    proxy.fault = lambda _: NO_FAULT
    job.advance_to("Succeeded", since="Starting")
    assert ready(job.get())["reason"] == "AllRanksSucceeded"
    recorder.catch_up(namespace)
    reasons = [ready(version).get("reason") for version in recorder.versions[job.uid]]
    assert [reason for reason, _ in itertools.groupby(reasons)].count("ReconcileError") == 1, reasons
