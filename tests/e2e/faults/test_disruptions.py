"""Deleted pods, and pods that exceed their memory or storage. One job for each case; all run side by side.

In attempt 1 the ranks wait for a file that no test creates, so each job ends in attempt 2 or not at all.
"""

from __future__ import annotations

import pytest

from e2e.access import wait_for
from e2e.namespace import HELD, Namespace
from horovodjob.api.constants import LABEL_ATTEMPT
from support.api_client import Object

WAITS = '[ "$HOROVODJOB_ATTEMPT" = 2 ] || exec sleep 3600; echo "rank of attempt 2 on $HOSTNAME"'
RELEASED = f'[ "$HOROVODJOB_ATTEMPT" = 2 ] || exec sleep 3600; {HELD}; {WAITS}'
# Ranks of attempt 1 that ignore signals and leave a process group behind: mpirun and sshd alone would not end it.
CLINGS = '[ "$HOROVODJOB_ATTEMPT" = 2 ] || { trap "" TERM HUP INT; setsid sleep 7200 & }; ' + RELEASED
# Only rank 0 exceeds the memory limit of its worker.
GREEDY = (
    '[ "$HOROVODJOB_ATTEMPT" != 1 ] || [ "$OMPI_COMM_WORLD_RANK" = 1 ] || exec python3 -c "'
    'import os, time; hoard = [os.urandom(1 << 20) for _ in range(600)]; time.sleep(3600)"; ' + WAITS
)
# The kubelet measures the storage of a container each ten seconds, and evicts pods one after another: only that of
# rank 1 exceeds its limit.
MESSY = (
    '[ "$HOROVODJOB_ATTEMPT" != 1 ] || [ "$OMPI_COMM_WORLD_RANK" = 0 ] || '
    'head -c 60000000 /dev/zero >"$HOME/heap"; ' + WAITS
)
JOBS = ("deleted", "headless", "memory", "storage")
TWO = {"replicas": 2}


@pytest.fixture(scope="module")
def first(module_namespace: Namespace) -> dict[str, dict[str, Object]]:
    """The pods of each job during its first attempt; then each job loses one."""
    namespace = module_namespace
    limited = {"resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "300Mi"}}}
    namespace.apply(
        namespace.job("deleted", CLINGS, worker=TWO),
        namespace.job("headless", WAITS, worker=TWO),
        namespace.job("memory", GREEDY, worker=TWO | limited),
        namespace.job("storage", MESSY, worker=TWO | {"resources": {"limits": {"ephemeral-storage": "50Mi"}}}),
    )
    for name, processes in (("deleted", 2), ("headless", 1)):
        namespace.wait_phase(name, "Running")
        for pod in (f"{name}-worker-0", f"{name}-worker-1"):
            wait_for(f"the rank in {pod}", lambda pod=pod, n=processes: len(_sleeps(namespace, pod)) == n)  # type: ignore[misc]
    namespace.wait("memory", "the first attempt", lambda status: status.get("runningTime") or status["attempt"] == 2)
    before = {name: namespace.pods(name) for name in JOBS}
    namespace.delete_pod("deleted-worker-1", seconds=0)
    namespace.delete_pod("headless-launcher")
    return before


def _sleeps(namespace: Namespace, pod: str) -> list[tuple[str, str]]:
    """Attempt and command line of the processes in a pod that sleep for an hour or longer."""
    return sorted(one for one in namespace.processes(pod) if one[1].split() in (["sleep", "3600"], ["sleep", "7200"]))


def _uids(pods: dict[str, Object]) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in pods.items()}


def _uids_of_name(namespace: Namespace, pod: str) -> list[str]:
    """The UIDs of all pods with this name, the oldest first."""
    ever = namespace.pods_ever(pod.rpartition("-worker")[0] or pod.removesuffix("-launcher"))
    own = [one for one in ever if one["metadata"]["name"] == pod]
    return [one["metadata"]["uid"] for one in sorted(own, key=lambda one: str(one["metadata"]["creationTimestamp"]))]


def test_a_disrupted_worker_is_replaced_and_the_other_one_kept(
    module_namespace: Namespace, first: dict[str, dict[str, Object]]
) -> None:
    status = module_namespace.wait("deleted", "the second attempt", lambda status: status["attempt"] == 2)
    assert (status["restarts"], status["preemptions"]) == (0, 1)
    (error,) = status["errors"]
    assert (error["reason"], error["pod"], error["attempt"]) == ("WorkerLost", "deleted-worker-1", 1)
    module_namespace.wait("deleted", "attempt 2 runs", lambda status: status["phase"] == "Running")
    before = _uids(first["deleted"])
    assert _uids_of_name(module_namespace, "deleted-worker-0") == [before["deleted-worker-0"]]
    lost, *new = _uids_of_name(module_namespace, "deleted-worker-1")
    assert lost == before["deleted-worker-1"]
    assert len(new) == 1


def test_no_rank_of_an_old_attempt_survives_in_a_kept_worker(
    module_namespace: Namespace, first: dict[str, dict[str, Object]]
) -> None:
    namespace, kept = module_namespace, "deleted-worker-0"
    namespace.wait("deleted", "attempt 2", lambda status: status["attempt"] == 2 and status["phase"] == "Running")

    def attempts() -> set[str]:
        return {attempt for attempt, _ in namespace.processes(kept)}

    wait_for("ranks of attempt 2", lambda: "2" in attempts())
    assert attempts() == {"2"}
    hostfile = namespace.exec(kept, "cat", "/run/horovodjob/hostfile")
    addresses = [namespace.pods()[f"deleted-worker-{index}"]["status"]["podIP"] for index in (0, 1)]
    assert hostfile == "".join(f"{address} slots=1\n" for address in addresses)
    namespace.release("deleted-worker-0", "deleted-worker-1")
    assert_second_attempt_ran(namespace, "deleted")


def assert_second_attempt_ran(namespace: Namespace, name: str) -> None:
    """Asserts that it ran on every worker."""
    namespace.wait_phase(name, "Succeeded")
    assert sorted(namespace.output(name)) == [f"rank of attempt 2 on {name}-worker-{index}" for index in (0, 1)]


def test_a_deleted_launcher_is_replaced_and_all_workers_are_kept(
    module_namespace: Namespace, first: dict[str, dict[str, Object]]
) -> None:
    assert_second_attempt_ran(module_namespace, "headless")
    status = module_namespace.status("headless")
    assert (status["attempt"], status["restarts"], status["preemptions"]) == (2, 0, 1)
    (error,) = status["errors"]
    assert (error["reason"], error["pod"]) == ("LauncherFailed", "headless-launcher")
    before = _uids(first["headless"])
    for index in (0, 1):
        assert _uids_of_name(module_namespace, f"headless-worker-{index}") == [before[f"headless-worker-{index}"]]
    assert len(_uids_of_name(module_namespace, "headless-launcher")) == 2


def test_a_worker_out_of_memory_is_reported_and_replaced(
    module_namespace: Namespace, first: dict[str, dict[str, Object]]
) -> None:
    status = module_namespace.wait_phase("memory", "Succeeded")
    (error,) = status["errors"]
    assert (error["reason"], error["pod"]) == ("WorkerOutOfMemory", "memory-worker-0")
    assert "memory limit" in error["message"]
    assert (status["restarts"], status["preemptions"]) == (1, 0)
    assert len(_uids_of_name(module_namespace, "memory-worker-0")) == 2
    assert len(_uids_of_name(module_namespace, "memory-worker-1")) == 1


def test_a_worker_that_exceeds_its_storage_limit_is_reported_and_counts_as_a_failure(
    module_namespace: Namespace, first: dict[str, dict[str, Object]]
) -> None:
    status = module_namespace.wait_phase("storage", "Succeeded")
    (error,) = status["errors"]
    # On a busy machine the eviction is over before the other jobs run, so `first` does not have the pod any more.
    pods = [pod for pod in module_namespace.pods_ever("storage") if pod["metadata"]["labels"][LABEL_ATTEMPT] == "1"]
    nodes = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods}
    assert (error["reason"], error["node"]) == ("WorkerLost", nodes[error["pod"]])
    assert (
        "was evicted: Pod ephemeral local storage usage exceeds the total limit of containers 50Mi" in error["message"]
    )
    assert (status["attempt"], status["restarts"], status["preemptions"]) == (2, 1, 0)
