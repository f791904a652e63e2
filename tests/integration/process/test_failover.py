"""Failover with jobs in each phase: under the new leader, each job continues as if nothing had happened."""

import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path

import pytest

from horovodjob_operator.controller.jobs.status_writer import COUNTS_SECONDS
from integration.process.half_open_proxy import HalfOpenProxy
from integration.process.leader_election import Pair, credential_of, leader_and_standby, lease, writes
from integration.scenarios import finish_from_each_phase, jobs_in_each_phase
from support.api_client import Api, wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.control_plane.watch_threads import Recorder
from support.job_driver import Job, submit
from support.operator_process import Operator

# Phases that the operator leaves out when the job is already in a later one.
OPTIONAL_PHASES = ("", "Queued", "Starting")


@pytest.fixture
def proxies() -> Iterator[list[HalfOpenProxy]]:
    """The proxy between the API server and the standby."""
    started: list[HalfOpenProxy] = []
    yield started
    for proxy in started:
        proxy.close()


@pytest.fixture
def pair(operator_process: Operator, api: Api, tmp_path: Path, proxies: list[HalfOpenProxy]) -> Iterator[Pair]:
    """A leader, and a standby behind a proxy."""

    def proxied(kubeconfig: Path) -> Path:
        proxies.append(HalfOpenProxy(kubeconfig))
        return proxies[0].kubeconfig(tmp_path / "proxied.yaml")

    operator_process.kill()
    with leader_and_standby(api, tmp_path, proxied) as started:
        yield started


def wait_until_quiet(count: Callable[[], int]) -> None:
    """Returns when the number of writes has not changed for longer than the operator withholds counts of pods."""
    known = -1
    while (now := count()) != known:
        known = now
        time.sleep(COUNTS_SECONDS + 2)


def terminating_job(api: Api, namespace: str) -> Job:
    """A job that cannot end, because a node does not respond."""
    job = submit(api, namespace, "terminating").advance_to("Running")
    api.patch(f"{job.pods_path}/{job.name}-worker-0", {"metadata": {"finalizers": ["example.com/hold"]}})
    job.edit_policy(terminate=True)
    job.wait("Terminating")
    return job


def test_two_failovers_disturb_no_job_in_any_phase(
    pair: Pair,
    proxies: list[HalfOpenProxy],
    control_plane: OperatorControlPlane,
    recorder: Recorder,
    api: Api,
    namespace: str,
    tmp_path: Path,
) -> None:
    one, two = pair
    jobs = jobs_in_each_phase(partial(submit, api, namespace))
    terminating = terminating_job(api, namespace)
    deleted = submit(api, namespace, "deleted").advance_to("Running")
    credential = credential_of(tmp_path / "one.yaml")
    wait_until_quiet(lambda: len([each for each in writes(control_plane, credential) if "leases" not in each]))
    before = {phase: (job.get(), job.uids()) for phase, job in jobs.items() if phase != "Restarting"}

    def lead(operator: Operator, new: Job) -> None:
        wait_for("the standby to lead", lambda: operator.is_leader and operator.get("/readyz")[0] == 200)
        new.advance_to("Succeeded")
        assert (new.status["attempt"], new.status.get("errors", [])) == (1, [])
        assert {phase: (jobs[phase].get(), jobs[phase].uids()) for phase in before} == before

    # The leader dies in a partition of the network that leaves the standby with half-open connections.
    new = submit(api, namespace, "new")
    proxies[0].go_silent()
    one.kill()
    assert lease(api)["holderIdentity"] == "one"
    lead(two, new)
    # The next leader is paused; when it continues, it writes nothing.
    one.start()
    two.send(signal.SIGSTOP)
    lead(one, submit(api, namespace, "newer"))
    credential = credential_of(tmp_path / "two.yaml")
    written = len(writes(control_plane, credential))
    two.send(signal.SIGCONT)
    assert two.wait_for_exit()[0].startswith("ERROR: lease: lost")
    assert set(writes(control_plane, credential)[written:]) <= {"update leases"}

    finish_from_each_phase(jobs)
    api.patch(f"{terminating.pods_path}/{terminating.name}-worker-0", {"metadata": {"finalizers": None}})
    assert (terminating.wait("Failed")["attempt"], terminating.condition("Failed")["reason"]) == (1, "Terminated")
    deleted.delete()
    wait_for("the job and its pods to be deleted", lambda: api.find(deleted.path) is None and not deleted.pods())
    recorder.catch_up(namespace)
    between = {"Restarting": ["Running", "Restarting"], "Suspended": ["Running", "Suspended"]}
    for phase, job in jobs.items():
        recorded = [
            phase for phase, _ in groupby(each["status"].get("phase", "") for each in recorder.versions[job.uid])
        ]
        expected = [*between.get(phase, ()), "Running", "Succeeded"]
        assert [phase for phase in recorded if phase not in OPTIONAL_PHASES] == expected, job.name
