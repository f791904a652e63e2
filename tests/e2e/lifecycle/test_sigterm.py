"""SIGTERM reaches the ranks of deleted pods, and the grace period allows a checkpoint. All jobs run side by side.

In attempt 1 the ranks wait for SIGTERM; those that handle it need eight seconds for their checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.access import wait_for
from e2e.namespace import Namespace, volume

SECONDS = 8
# Longer than the deadline of a test: a test that waits for the end of a grace period fails.
GRACE_SECONDS = 3600
PROGRAM = f"""
import os, pathlib, signal, sys, time
name, rank = os.environ["HOROVODJOB_NAME"], os.environ["OMPI_COMM_WORLD_RANK"]
def save(*_):
    pathlib.Path(f"/data/{{name}}-{{rank}}-signalled").open("x").close()
    time.sleep({SECONDS})
    pathlib.Path(f"/data/{{name}}-{{rank}}-saved").open("x").close()
    sys.exit(143)
if os.environ["HOROVODJOB_ATTEMPT"] == "1":
    if rank in sys.argv[1]:
        signal.signal(signal.SIGTERM, save)
    pathlib.Path(f"/data/{{name}}-{{rank}}-waits").touch()
    time.sleep(3600)
"""
# The ranks that handle SIGTERM, by job.
LISTENERS = {"half": "0", "launcher": "01", "suspended": "01", "deaf": ""}


@pytest.fixture(scope="module")
def share(module_namespace: Namespace, shared_directory: Callable[[str], Path]) -> Path:
    """The volume of the jobs; each job ran and then lost one pod or all."""
    namespace, directory = module_namespace, shared_directory(module_namespace.name)
    volumes, mounts = volume(namespace, directory)
    template = {"template": {"spec": {"terminationGracePeriodSeconds": GRACE_SECONDS}}}
    shared = {"volumes": volumes, "volumeMounts": mounts, "worker": {"replicas": 2, **template}}
    jobs = (
        namespace.job(name, ["python3", "-c", PROGRAM, f"ranks {ranks}"], **shared) for name, ranks in LISTENERS.items()
    )
    namespace.apply(*jobs)
    for name in LISTENERS:
        ready = [directory / f"{name}-{rank}-waits" for rank in (0, 1)]
        wait_for(f"the ranks of {name}", lambda ready=ready: all(file.exists() for file in ready))  # type: ignore[misc]
    for name in ("half", "deaf"):
        namespace.delete_pod(f"{name}-worker-1")
    namespace.delete_pod("launcher-launcher")
    namespace.change("suspended", {"runPolicy": {"suspend": True}})
    return directory


@pytest.mark.parametrize("name", LISTENERS)
def test_every_rank_that_handles_sigterm_receives_it_once_and_can_save_before_the_job_continues(
    module_namespace: Namespace, share: Path, name: str
) -> None:
    """For any deleted pod, also if the other rank ignores SIGTERM, which delays the job by no grace period.

    A rank that receives SIGTERM twice saves nothing.
    """
    files = [share / f"{name}-{rank}-saved" for rank in LISTENERS[name]]
    wait_for(f"what {name} saves", lambda: all(file.exists() for file in files))
    if name == "suspended":
        wait_for("no pods", lambda: not module_namespace.pods("suspended"))
        assert module_namespace.wait_phase("suspended", "Suspended")["restarts"] == 0
    else:
        status = module_namespace.wait_phase(name, "Succeeded")
        assert (status["attempt"], status["restarts"], status["preemptions"]) == (2, 0, 1)
