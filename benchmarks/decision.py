"""What one pass over a job computes, by the number of its workers; nothing is sent.

    .venv/bin/python benchmarks/decision.py [--rounds 5]

Exit status: 0 if the target for 5,000 workers is met, 1 if not.
"""

import argparse
import statistics
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from horovodjob.api.constants import Phase, Role
from horovodjob.api.job import HorovodJob, Metadata
from horovodjob.api.spec import HorovodJobSpec
from horovodjob.api.status import HorovodJobStatus
from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.domain import names
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.plan import plan_for
from horovodjob_operator.domain.pods.pod import Pod
from horovodjob_operator.domain.pods.pod_facts import OwnedPod
from horovodjob_operator.domain.status import next_status
from horovodjob_operator.kube.pod_cache import PodCache

WORKERS = (2, 100, 1000, 5000)
TARGET_SECONDS = 0.030
NOW = datetime.now(UTC)


def running_job(workers: int) -> tuple[PodCache, JobState]:
    """A job with all its ranks at work, as the operator knows it."""
    spec = {"image": "trainer", "command": ["train"], "worker": {"replicas": workers, "gpus": 0}}
    job = HorovodJob(
        metadata=Metadata(name="job", namespace="team", uid="uid", creation_timestamp=NOW),
        spec=HorovodJobSpec.model_validate(spec),
        status=HorovodJobStatus(),
    )
    pods = PodCache()
    common: dict[str, Any] = {
        "attempt": 1,
        "owner_uid": "uid",
        "phase": "Running",
        "node": "node",
        "is_ready": True,
        "created_at": NOW,
    }
    addresses = [f"10.{index // 250}.{index % 250}.1" for index in range(workers)]
    hosts = "".join(f"{address} slots=1\n" for address in addresses)
    launcher = Pod(names.launcher_name(job), "launcher", Role.LAUNCHER, hosts=hosts, address="10.255.0.1")
    pods.store(OwnedPod(job.key, replace(launcher, **common)))
    for index, address in enumerate(addresses):
        worker = Pod(names.worker_name(job, index), f"worker-{index}", Role.WORKER, index, address=address)
        pods.store(OwnedPod(job.key, replace(worker, **common)))
    state = JobState(job, 1)
    while (status := next_status(context_of(pods, state))[0]) != state.job.status:
        state.job = state.job.model_copy(update={"status": status})
    assert state.job.status.phase is Phase.RUNNING
    return pods, state


def context_of(pods: PodCache, state: JobState) -> JobContext:
    """The facts for one pass."""
    return JobContext(state.job, state.observed(pods.of_job(state.job.key).values()), NOW)


def seconds(pods: PodCache, state: JobState) -> float:
    """Processor time of one pass that finds nothing new."""
    began = time.process_time()
    context = context_of(pods, state)
    status, outcome = next_status(context)
    plan_for(context, outcome)
    assert status == state.job.status
    return time.process_time() - began


def main() -> int:
    """Prints a line for each size and the verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    took = 0.0
    print(f"{'workers':>8}{'pass, ms':>10}{'a worker, us':>14}")
    for workers in WORKERS:
        job = running_job(workers)
        took = statistics.median(seconds(*job) for _ in range(rounds))
        print(f"{workers:>8}{took * 1000:>10.2f}{took / workers * 1e6:>14.2f}")
    met = took <= TARGET_SECONDS
    print(f"target: at most {TARGET_SECONDS * 1000:g} ms for {workers} workers, {'met' if met else 'MISSED'}")
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
