"""Scenarios of jobs, and the outcome of each."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from localcluster.control_plane.components import pod_group_version
from support.api_client import Api, ApiError, Object, wait_for
from support.control_plane.operator_control_plane import BINARIES
from support.job_driver import Job, submit

Scenario = Callable[[Job], None]
GANG = "Native" if pod_group_version(BINARIES) else "None"
# Fields of the spec in addition to those of a job with two workers.
SPECS: dict[str, Object] = {
    "is-interrupted": {"scheduling": {"gang": GANG}},
    "is-scaled": {"elastic": {"minReplicas": 1, "maxReplicas": 4}},
}
SHORT_PHASES = ("Queued", "Starting")
EVENTS_OF_SHORT_PHASES = ("Queued", "Created", "Admitted", "WorkersReady")
OWNED_KINDS = {
    "pods": "/api/v1",
    "secrets": "/api/v1",
    "services": "/api/v1",
    "networkpolicies": "/apis/networking.k8s.io/v1",
    "podgroups": f"/apis/scheduling.k8s.io/{pod_group_version(BINARIES)}",
}


def succeeds(job: Job) -> None:
    before = ""
    for phase in ("Queued", "Starting", "Running", "Succeeded"):  # so that each is written
        job.advance_to(phase, since=before)
        before = phase


def is_interrupted(job: Job) -> None:
    """The job loses a worker, restarts, is suspended and resumes."""
    job.advance_to("Running")
    job.end("worker-1", 137, evicted="the node was low on resource: memory")
    job.skip_backoff()
    run_next_attempt(job)
    suspend(job)
    resume(job)


def suspend(job: Job) -> None:
    """The job gives its nodes back."""
    job.suspend()
    job.wait("Suspended")
    wait_for("its pods to be deleted", lambda: not job.pods())


def resume(job: Job) -> None:
    """The job gets its nodes again, and succeeds."""
    job.suspend(False)
    job.wait("Queued")
    job.advance_to("Succeeded", since="Queued")


def is_scaled(job: Job) -> None:
    job.advance_to("Running")
    _scale(job, 3)
    job.schedule(["worker-2"])
    job.start("worker-2")
    wait_for("the third host", lambda: job.hosts.count("\n") == 3)
    _scale(job, 1)
    wait_for("the other workers to be deleted", lambda: set(job.pods()) == {"launcher", "worker-0"})
    job.end("launcher", 0)
    job.wait("Succeeded")


def _scale(job: Job, replicas: int) -> None:
    job.api.patch(job.path, {"spec": {"worker": {"replicas": replicas}}})


def run_next_attempt(job: Job) -> None:
    """The next attempt runs: its launcher is a new pod, its workers may be those of the attempt before."""

    def recreated() -> bool:
        launcher = job.pods().get("launcher")
        attempt = str(job.status["attempt"])
        return launcher is not None and launcher["metadata"]["labels"]["horovodjob.dev/attempt"] == attempt

    wait_for("the next launcher", recreated)
    job.schedule()
    job.run()
    job.wait("Running")


def finish_next_attempt(job: Job) -> None:
    """The next attempt succeeds."""
    run_next_attempt(job)
    job.end("launcher", 0)
    job.wait("Succeeded")


SCENARIOS: dict[str, Scenario] = {"succeeds": succeeds, "is-interrupted": is_interrupted, "is-scaled": is_scaled}
PHASES = ("Queued", "Starting", "Running", "Restarting", "Suspended", "Succeeded")


def jobs_in_each_phase(submit_job: Callable[[str], Job]) -> dict[str, Job]:
    """A job in each phase, by phase."""
    jobs = {phase: submit_job(phase.lower()) for phase in PHASES}
    for phase, job in jobs.items():
        job.advance_to("Running" if phase == "Suspended" else phase)
    suspend(jobs["Suspended"])
    return jobs


def finish_from_each_phase(jobs: dict[str, Job]) -> None:
    """Lets each job succeed from its phase: no attempt is lost, and no event is posted twice."""
    for phase, job in jobs.items():
        if phase == "Restarting":
            job.skip_backoff()
            finish_next_attempt(job)
        elif phase == "Suspended":
            resume(job)
        elif phase != "Succeeded":
            job.advance_to("Succeeded", since=phase)
    attempts = {phase: 1 + (phase in ("Restarting", "Suspended")) for phase in jobs}
    assert {phase: (job.phase, job.status["attempt"]) for phase, job in jobs.items()} == {
        phase: ("Succeeded", attempt) for phase, attempt in attempts.items()
    }
    assert {phase: job.status["restarts"] for phase, job in jobs.items() if job.status["restarts"]} == {"Restarting": 1}
    assert {job.events()["Succeeded"] for job in jobs.values()} <= {0, 1}


def submit_for(api: Api, namespace: str, scenario: str, name: str = "train") -> Job:
    """Creates the job of a scenario."""
    return submit(api, namespace, name, **SPECS.get(scenario, {}))


def outcome(job: Job) -> dict[str, Any]:
    """The status and objects of a finished job, without names and times that differ between jobs."""
    wait_for("the workers to be deleted", lambda: not set(job.pods()) - {"launcher"})
    wait_for("the PodGroup to be deleted", lambda: not owned_objects(job)["podgroups"])
    status = job.status
    return {
        "status": {key: status.get(key) for key in ("phase", "attempt", "restarts", "preemptions", "exitCode")},
        "conditions": {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]},
        "errors": [
            (error["reason"], error["attempt"], error["pod"].removeprefix(job.name))
            for error in status.get("errors", ())
        ],
        "objects": dict(owned_objects(job)),
    }


def excess_events(job: Job, usual: Counter[str]) -> dict[str, int]:
    """The events that the job has more often than `usual`, those of an undisturbed job.

    Some may be missing, and those of a phase that the undisturbed job was in too briefly may be additional.
    """
    limits = usual | Counter(dict.fromkeys(EVENTS_OF_SHORT_PHASES, job.status["attempt"]))
    return {reason: count for reason, count in job.events().items() if count > limits[reason]}


def owned_objects(job: Job) -> Counter[str]:
    """The number of objects of each kind that the job owns."""
    found: Counter[str] = Counter()
    for plural, root in OWNED_KINDS.items():
        try:
            items = job.api.get(f"{root}/namespaces/{job.namespace}/{plural}")["items"]
        except ApiError as error:
            if error.status != 404:  # this API server does not serve pod groups
                raise
            continue
        owners = (item["metadata"].get("ownerReferences", ()) for item in items)
        found[plural] = sum(any(owner["uid"] == job.uid for owner in each) for each in owners)
    return found
