"""The network fails for a while: jobs continue."""

import threading
from pathlib import Path

from integration.scenarios import finish_next_attempt
from support.api_client import Api
from support.faults.fault_proxy import FaultProxy
from support.job_driver import submit
from support.operator_process import Operator

# Longer than the operator waits for evidence, retries and holds a phase back. A watch notices silence only after 70 s.
PARTITION_SECONDS = 20


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
