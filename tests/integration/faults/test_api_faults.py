"""One in five answers of the API server is a fault, and watches break every few seconds: all jobs end as usual."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from horovodjob_operator.domain.names import KEYS_PREFIX
from integration.scenarios import SCENARIOS, outcome, submit_for
from support.api_client import Api, wait_for
from support.faults.fault_proxy import NO_FAULT, Fault, FaultProxy, Request
from support.faults.random_faults import WATCH_FAULTS, RandomFaults
from support.operator_process import Operator

JOBS, FAULT_RATE, WATCH_SECONDS = 12, 0.2, 5
# The API server is asked to end each watch after so many seconds: one that is half-open is noticed 5 s later.
WATCH_TIMEOUT_SECONDS = "10"
PLAYED = ("succeeds", "fails-once", "loses-worker", "suspended-and-resumed")


@pytest.fixture
def operator(proxy: FaultProxy, namespace: str, tmp_path: Path) -> Iterator[Operator]:
    """An operator behind the proxy, which is not started yet."""
    log = tmp_path / "log"
    operator = Operator(proxy.kubeconfig, log, namespaces=namespace, watch_timeout_seconds=WATCH_TIMEOUT_SECONDS)
    yield operator
    operator.kill()
    proxy.close()
    print(log.read_text())  # shown if the test fails


def test_a_job_starts_although_the_creation_of_its_secret_had_no_response(
    api: Api, namespace: str, proxy: FaultProxy, operator: Operator
) -> None:
    resets: list[Request] = []

    def reset_first_creation(request: Request) -> Fault:
        is_creation = request.method == "POST" and request.path.endswith("/secrets")
        if resets or not is_creation or not request.body["metadata"]["name"].startswith(KEYS_PREFIX):
            return NO_FAULT
        resets.append(request)
        return Fault(reset_after=True)

    proxy.fault = reset_first_creation
    operator.start()
    job = submit_for(api, namespace, "succeeds").advance_to("Succeeded")
    assert resets
    assert outcome(job)["objects"]["secrets"] == 1
    assert operator.errors() == []


def test_a_failed_watch_is_replaced_and_the_process_continues(
    api: Api, namespace: str, proxy: FaultProxy, operator: Operator
) -> None:
    faults = {
        resource: [Fault(status=410), Fault(status=500, is_error_event=True)] for resource in ("horovodjobs", "pods")
    }

    def fail_first_watches(request: Request) -> Fault:
        left = faults.get(request.path.rpartition("/")[2], []) if request.is_watch else []
        return left.pop() if left else NO_FAULT

    proxy.fault = fail_first_watches
    operator.start()
    submit_for(api, namespace, "succeeds").advance_to("Succeeded")
    assert faults == {"horovodjobs": [], "pods": []}
    assert operator.is_running
    assert operator.errors() == []


def test_jobs_end_as_usual_despite_faulty_answers(
    api: Api, namespace: str, proxy: FaultProxy, operator: Operator
) -> None:
    def run(number: int) -> dict[str, Any]:
        scenario = PLAYED[number % len(PLAYED)]
        job = submit_for(api, namespace, scenario, f"job-{number}")
        SCENARIOS[scenario](job)
        return outcome(job)

    operator.start()
    with ThreadPoolExecutor(JOBS) as pool:
        begin = time.monotonic()
        undisturbed = list(pool.map(run, range(len(PLAYED))))
        proxy.fault = faults = RandomFaults(rate=FAULT_RATE, watch_seconds=WATCH_SECONDS, seed=13)
        proxy.reset_all()  # the watches that began without a fault
        middle = time.monotonic()
        found = list(pool.map(run, range(len(PLAYED), len(PLAYED) + JOBS)))
        print(f"\n{middle - begin:.0f} s without faults, {time.monotonic() - middle:.0f} s with {dict(faults.counts)}")
        differences = [
            f"{PLAYED[number % len(PLAYED)]}: {key} {each[key]}, not {wanted}"
            for number, each in enumerate(found)
            for key, wanted in undisturbed[number % len(PLAYED)].items()
            if each[key] != wanted
        ]
        assert differences == []
        # The last kinds of faults of watches may come only after the jobs have ended.
        wait_for("each kind of fault", lambda: set(faults.counts) == set(WATCH_FAULTS))
        assert operator.errors() == []
