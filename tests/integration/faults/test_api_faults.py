"""Faults of answers and watches, and of the whole network: jobs end as usual, and a repeated error is in the status."""

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from horovodjob_operator.domain.names import KEYS_PREFIX
from integration.scenarios import SCENARIOS, finish_next_attempt, outcome, submit_for
from support.api_client import Api, Object, wait_for
from support.control_plane.watch_threads import Recorder
from support.faults.fault_proxy import NO_FAULT, Fault, FaultProxy, Request
from support.faults.random_faults import WATCH_FAULTS, RandomFaults
from support.job_driver import submit
from support.operator_process import Operator

JOBS, FAULT_RATE, WATCH_SECONDS = 4, 0.2, 3
# The API server is asked to end each watch after so many seconds: one that is half-open is noticed 5 s later.
WATCH_TIMEOUT_SECONDS = "10"
# Longer than the operator waits for evidence, retries and holds a phase back. A watch notices silence only after 70 s.
PARTITION_SECONDS = 20
PLAYED = ("succeeds", "is-interrupted")


@pytest.fixture
def operator(proxy: FaultProxy, namespace: str, tmp_path: Path) -> Iterator[Operator]:
    """An operator behind the proxy, which is not started yet."""
    log = tmp_path / "log"
    operator = Operator(proxy.kubeconfig, log, namespaces=namespace, watch_timeout_seconds=WATCH_TIMEOUT_SECONDS)
    yield operator
    operator.kill()
    print(log.read_text())  # shown if the test fails


def ready(body: Object) -> dict[str, str]:
    """The condition Ready of this version of a job."""
    conditions = body.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "Ready"), {})


class Faults:
    """The first creation of a Secret with keys has no answer, watches fail twice, and hosts cannot be published."""

    def __init__(self) -> None:
        failures = [Fault(status=410), Fault(status=500, is_error_event=True)]
        self.left = {"horovodjobs": [*failures], "pods": [*failures], "secrets": [Fault(reset_after=True)]}
        self.hosts_are_refused = True
        self.tries = 0

    def __call__(self, request: Request) -> Fault:
        resource = request.path.rpartition("/")[2]
        is_keys = request.method == "POST" and request.body.get("metadata", {}).get("name", "").startswith(KEYS_PREFIX)
        if (request.is_watch or is_keys) and self.left.get(resource):
            return self.left[resource].pop()
        if request.method == "PATCH" and "/pods/" in request.path and self.hosts_are_refused:
            self.tries += 1
            return Fault(status=500)
        return NO_FAULT


def test_a_job_outlives_lost_answers_and_broken_watches_and_says_which_error_repeats(
    api: Api, namespace: str, proxy: FaultProxy, operator: Operator, recorder: Recorder
) -> None:
    proxy.fault = faults = Faults()
    operator.start()
    job = submit(api, namespace).advance_to("Starting")
    job.run_workers()
    wait_for("the error", lambda: ready(job.get()).get("reason") == "ReconcileError")
    assert "500" in ready(job.get())["message"]
    assert "keeps trying" in ready(job.get())["message"]
    before = faults.tries
    wait_for("one more try", lambda: faults.tries > before)
    faults.hosts_are_refused = False
    job.advance_to("Succeeded", since="Starting")
    assert outcome(job)["objects"]["secrets"] == 1
    assert faults.left == {"horovodjobs": [], "pods": [], "secrets": []}
    recorder.catch_up(namespace)
    reasons = [ready(version).get("reason") for version in recorder.versions[job.uid]]
    assert [reason for reason, _ in itertools.groupby(reasons)].count("ReconcileError") == 1, reasons


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
        undisturbed = list(pool.map(run, range(len(PLAYED))))
        proxy.fault = faults = RandomFaults(rate=FAULT_RATE, watch_seconds=WATCH_SECONDS, seed=13)
        proxy.reset_all()  # the watches that began without a fault
        found = list(pool.map(run, range(len(PLAYED), len(PLAYED) + JOBS)))
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


def test_workers_that_fail_during_a_partition_cause_one_restart(
    api: Api, namespace: str, proxy: FaultProxy, tmp_path: Path
) -> None:
    operator = Operator(proxy.kubeconfig, tmp_path / "log", namespaces=namespace).start()
    one, two = (submit(api, namespace, name).advance_to("Running") for name in ("one", "two"))
    proxy.disconnect()
    for job, role in ((one, "worker-1"), (two, "worker-0"), (two, "worker-1")):
        job.end(role, 137)
    new = submit(api, namespace, "new")
    threading.Event().wait(PARTITION_SECONDS)
    assert (one.phase, two.phase, new.get().get("status", {}).get("phase")) == ("Running", "Running", None)
    proxy.connect()
    for job in (one, two):
        finish_next_attempt(job)
        assert (job.status["attempt"], job.status["restarts"], job.status["preemptions"]) == (2, 1, 0)
        assert job.events()["Restarting"] <= 1
    assert new.advance_to("Succeeded").status["attempt"] == 1
    operator.kill()
