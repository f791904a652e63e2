"""The API server or the network fails for a while: jobs continue."""

import threading
from collections.abc import Callable
from pathlib import Path

from integration.scenarios import finish_from_each_phase, finish_next_attempt, jobs_in_each_phase
from support.api_client import Api, wait_for
from support.faults.fault_proxy import FaultProxy
from support.job_driver import Job, submit
from support.operator_process import Operator

# Longer than the operator waits for evidence, retries and holds a phase back. A watch notices silence only after 70 s.
PARTITION_SECONDS = 20


def test_jobs_in_each_phase_continue_after_a_restart_of_the_api_server(
    submit_job: Callable[..., Job], operator: Operator, restart_apiserver: Callable[..., None]
) -> None:
    jobs = jobs_in_each_phase(submit_job)
    deleted = submit_job("deleted").advance_to("Running")
    restart_apiserver()
    deleted.delete()
    finish_from_each_phase(jobs)
    wait_for("the deleted job to be forgotten", lambda: operator.jobs(deleted.namespace) == {"Succeeded": len(jobs)})


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
