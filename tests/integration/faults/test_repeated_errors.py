"""An error that repeats is in the status of the job, and leaves it when the job is reconciled again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.api_client import Api, wait_for
from support.faults.fault_proxy import NO_FAULT, Fault, FaultProxy, Request
from support.job_driver import Job, submit
from support.operator_process import Operator


@pytest.fixture
def proxy(api: Api, operator_access: Path, operator_process: Operator, tmp_path: Path) -> FaultProxy:
    operator_process.kill()  # it would reconcile the same jobs
    return FaultProxy(api, operator_access, tmp_path)


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


def ready(job: Job) -> dict[str, str]:
    conditions = job.get().get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "Ready"), {})


@pytest.mark.usefixtures("operator")
def test_an_error_that_repeats_is_in_the_status_until_it_ends(api: Api, namespace: str, proxy: FaultProxy) -> None:
    def fail_hosts(request: Request) -> Fault:
        return Fault(status=500) if request.method == "PATCH" and "/pods/" in request.path else NO_FAULT

    proxy.fault = fail_hosts
    job = submit(api, namespace)
    job.advance_to("Starting").run_workers()
    wait_for("the error", lambda: ready(job).get("reason") == "ReconcileError")
    assert "500" in ready(job)["message"]
    assert "keeps trying" in ready(job)["message"]
    proxy.fault = lambda _: NO_FAULT
    job.advance_to("Succeeded", since="Starting")
    assert ready(job)["reason"] == "AllRanksSucceeded"
