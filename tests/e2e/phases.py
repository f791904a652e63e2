"""One job in each phase at the same time; each stays there until a test releases it."""

from __future__ import annotations

from e2e.access import MERGE_PATCH, wait_for
from e2e.namespace import HELD, RESTRICTED, Namespace
from support.api_client import Object

GATE = {"template": {"spec": {"schedulingGates": [{"name": "e2e.horovodjob.dev/hold"}]}}}
PHASES = ("queued", "starting", "running", "restarting", "suspended", "terminating", "succeeded", "failed")


def apply_jobs(namespace: Namespace, *names: str) -> None:
    """Applies a job for each phase, with the name of the phase, and waits until each is in its phase."""
    jobs = {job["metadata"]["name"]: job for job in _jobs(namespace)}
    namespace.apply(*(jobs[name] for name in names))
    if "restarting" in names:
        # The gate of attempt 2 is never removed, so the job stays in this phase.
        open_gate(namespace, "restarting-launcher", 1)
    if "terminating" in names:
        namespace.wait_phase("terminating", "Running")
        namespace.change("terminating", {"runPolicy": {"terminate": True}})
    for name in names:
        namespace.wait_phase(name, name.capitalize())
    assert {name: namespace.status(name)["phase"] for name in names} == {name: name.capitalize() for name in names}


def _jobs(namespace: Namespace) -> list[Object]:
    two, patient = {"replicas": 2}, {"scheduling": {"timeoutSeconds": 3600}}
    return [
        namespace.job("queued", "true", worker=two, launcher=GATE, **patient),
        namespace.job("starting", "true", worker=two | _held_by_an_init_container(namespace)),
        namespace.job("running", HELD, worker=two),
        namespace.job("restarting", '[ "$HOROVODJOB_ATTEMPT" = 2 ]', worker=two, launcher=GATE, **patient),
        namespace.job("suspended", "true", worker=two, runPolicy={"suspend": True}),
        namespace.job("terminating", "sleep 3600", worker=two | _held_by_a_hook()),
        namespace.job("succeeded", "true", worker=two),
        namespace.job("failed", "exit 4", worker=two, runPolicy={"backoffLimit": 0}),
    ]


def _held_by_a_hook() -> Object:
    worker = {"name": "worker", "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", HELD]}}}}
    return {"template": {"spec": {"terminationGracePeriodSeconds": 3600, "containers": [worker]}}}


def _held_by_an_init_container(namespace: Namespace) -> Object:
    # The sleep is for the command that creates the file: it fails if its container has ended before.
    command = ["sh", "-c", f"{HELD}; sleep 1"]
    container = {"name": "hold", "image": namespace.image, "command": command, "securityContext": RESTRICTED}
    return {"template": {"spec": {"initContainers": [container]}}}


def open_gate(namespace: Namespace, pod: str, attempt: int) -> None:
    """Removes the scheduling gate of a pod of this attempt."""

    def gated() -> bool:
        found = namespace.pod(pod)
        return found is not None and (
            found["metadata"]["labels"]["horovodjob.dev/attempt"] == str(attempt)
            and bool(found["spec"].get("schedulingGates"))
        )

    wait_for(f"{pod} of attempt {attempt} with its gate", gated)
    namespace.api.request("PATCH", f"{namespace.core}/pods/{pod}", {"spec": {"schedulingGates": None}}, MERGE_PATCH)


def release_workers(namespace: Namespace, job: str, container: str = "") -> None:
    """Creates the file that both workers of a job wait for."""
    namespace.release(*(f"{job}-worker-{index}" for index in (0, 1)), container=container)


def let_continue(namespace: Namespace) -> None:
    """Releases every job."""
    open_gate(namespace, "queued-launcher", 1)
    open_gate(namespace, "restarting-launcher", 2)
    release_workers(namespace, "running")
    release_workers(namespace, "terminating")
    release_workers(namespace, "starting", container="hold")
    namespace.change("suspended", {"runPolicy": {"suspend": False}})
