"""Courses of jobs with a queue, and the writes of each at which the operator is killed."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from integration.faults.operator_kills import Case, Lanes, Run, Write, kills_at
from integration.scenarios import run_next_attempt
from support.api_client import Api, ApiError, Object, wait_for
from support.faults.fault_proxy import NO_FAULT, Fault, Request
from support.job_driver import Job, timestamp
from support.kueue.queues import API, LABEL, Queue, QueuedJob, create_admission_check

QUEUES: dict[str, Queue] = {}
CHECKED_QUEUES: dict[str, Queue] = {}
"""By namespace: several runs share one, one after the other. Those with an admission check have it from the start."""
PREBUILT_LABEL = "kueue.x-k8s.io/prebuilt-workload-name"


def prepare(namespace: str, api: Api) -> None:
    """Creates the queues of a namespace."""
    QUEUES[namespace] = Queue(api, namespace, 2)
    create_admission_check(api, namespace)
    CHECKED_QUEUES[namespace] = checked = Queue(api, namespace, 2, name="checked")
    checked.change(admissionChecksStrategy={"admissionChecks": [{"name": namespace}]})


# ---- steps ---------------------------------------------------------------------------------------------------


def run(job: QueuedJob) -> None:
    """The ranks run, and the queue knows it."""
    job.advance_to("Running")
    job.wait_for_workload("PodsReady")


def finish(job: QueuedJob) -> None:
    """The ranks succeed, and the quota is free."""
    job.end("launcher", 0)
    job.wait("Succeeded")
    job.wait_for_workload("Finished", reason="Succeeded")


def run_after(job: QueuedJob, attempt: int) -> None:
    """The attempt after this one runs, and the queue knows it."""
    wait_for("the next attempt", lambda: job.status["attempt"] > attempt)
    run_next_attempt(job)
    job.wait_for_workload("PodsReady")


def run_again(job: QueuedJob) -> None:
    """The next attempt runs and succeeds."""
    run_after(job, 1)
    finish(job)


def wait_for_clearing(job: QueuedJob) -> None:
    """Waits until the operator has given the quota of an evicted job back."""
    wait_for("the quota to be given back", lambda: "admission" not in job.workload.get("status", {}))


def set_condition(job: QueuedJob, kind: str, reason: str, **status: Any) -> None:
    """Acts as Kueue: sets a condition of the Workload."""
    made = {"type": kind, "status": "True", "reason": reason, "message": reason, "lastTransitionTime": timestamp()}

    def write() -> bool:
        workload = job.workload
        others = [one for one in workload["status"]["conditions"] if one["type"] != kind]
        metadata = {"resourceVersion": workload["metadata"]["resourceVersion"]}
        body = {"metadata": metadata, "status": {"conditions": [*others, made], **status}}
        try:
            job.api.patch(f"{job.workload_path()}/status", body)
        except ApiError as error:
            if error.status == 409:
                return False
            raise
        return True

    wait_for(f"the condition {kind} to be written", write)


# ---- courses -------------------------------------------------------------------------------------------------


def queue_stopped(job: QueuedJob, queue: Queue) -> None:
    run(job)
    queue.add("gpus", stopPolicy="HoldAndDrain")
    wait_for_clearing(job)
    queue.add("gpus")
    run_again(job)


def out_of_time(job: QueuedJob, _queue: Queue) -> None:
    run(job)
    set_condition(job, "DeactivationTarget", "MaximumExecutionTimeExceeded")
    wait_for_clearing(job)
    job.api.patch(job.workload_path(), {"spec": {"active": True}})
    run_again(job)


def contradicted(job: QueuedJob, queue: Queue) -> None:
    job.set_check(queue.namespace, "Ready", worker={"nodeSelector": {"flavor": "other"}})
    job.wait("Failed")
    job.wait_for_workload("Finished", reason="FailedToStart")


def partially_admitted(job: QueuedJob, _queue: Queue) -> None:
    roles = ["launcher", "worker-0", "worker-1"]
    job.schedule(roles)
    for worker in roles[1:]:
        job.start(worker)
    wait_for("the hosts", lambda: job.hosts.count("\n") == 2)
    job.start("launcher")
    job.wait_for_workload("PodsReady")
    job.api.patch(job.path, {"spec": {"worker": {"replicas": 1}}})
    wait_for("the quota of a worker to be given back", lambda: job.workload["status"].get("reclaimablePods"))
    finish(job)


def troubled(job: QueuedJob, queue: Queue) -> None:
    """The job fails once, is suspended and resumed, and gets another queue and priority."""
    queue.add("other")
    run(job)
    job.end("launcher", 1, message="boom")
    job.wait_for_workload("PodsReady", status="False", reason="WaitForRecovery")
    job.skip_backoff()
    run_next_attempt(job)
    job.wait_for_workload("PodsReady", reason="Recovered")
    job.suspend()
    job.wait("Suspended")
    wait_for("its Workload to be deleted", lambda: not job.workload)
    job.suspend(False)
    run_after(job, 2)
    job.relabel(queue="other", priority="urgent")
    wait_for("the priority", lambda: job.workload["spec"]["priority"] == 1000)
    queue.add("gpus", stopPolicy="HoldAndDrain")
    wait_for("the other queue", lambda: job.workload["spec"]["queueName"] == "other")
    run_after(job, 3)
    finish(job)


def left_and_entered(job: QueuedJob, _queue: Queue) -> None:
    run(job)
    job.relabel(queue=None)
    wait_for("its Workload to be deleted", lambda: not job.workload)
    job.relabel(queue="gpus")
    run_again(job)


def prebuilt(job: QueuedJob, _queue: Queue) -> None:
    run(job)
    set_condition(job, "Evicted", "Preempted")
    run_again(job)


def create_prebuilt(queue: Queue) -> None:
    """Creates a Workload as MultiKueue does."""
    model = queue.submit("model", labels={LABEL: "missing"})
    spec = wait_for("the Workload of the model", lambda: model.workload)["spec"] | {"queueName": "gpus"}
    model.delete()
    metadata = {"name": "horovodjob-prebuilt"}
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata, "spec": spec}
    path = f"{API}/namespaces/{queue.namespace}/workloads"
    wait_for("the one of the job before to be deleted", lambda: queue.api.find(f"{path}/horovodjob-prebuilt") is None)
    queue.api.create(path, body)


@dataclass(frozen=True, slots=True)
class Course:
    """What happens to a job, and what is different about it."""

    scenario: Callable[[QueuedJob, Queue], None]
    labels: Object = field(default_factory=dict)
    spec: Object = field(default_factory=dict)
    prepare: Callable[[Queue], None] = lambda _: None
    has_check: bool = False

    def submit(self, _api: Api, namespace: str, name: str) -> Job:
        """Creates a job of the namespace's queue."""
        queue = self._queue(namespace)
        queue.add(queue.name)
        self.prepare(queue)
        return queue.submit(name, labels=self.labels, **self.spec)

    def run(self, job: Job) -> None:
        """Carries the job to its end."""
        assert isinstance(job, QueuedJob)
        self.scenario(job, self._queue(job.namespace))

    def _queue(self, namespace: str) -> Queue:
        return (CHECKED_QUEUES if self.has_check else QUEUES)[namespace]


ELASTIC: Object = {"workers": 5, "elastic": {"minReplicas": 1, "maxReplicas": 5}}
COURSES = [
    Course(out_of_time),
    Course(contradicted, has_check=True),
    Course(partially_admitted, spec=ELASTIC),
    Course(troubled),
    Course(left_and_entered),
    Course(prebuilt, {PREBUILT_LABEL: "horovodjob-prebuilt"}, prepare=create_prebuilt),
]


# ---- runs ----------------------------------------------------------------------------------------------------


class Kills:
    """Which writes of a course have kills: all of the first course, and what is different in the others."""

    def __init__(self, first: Run) -> None:
        running = Write("PATCH horovodjobs Running", 1)
        start, end = (first.writes.index(write) for write in (running, replace(running, occurrence=2)))
        self._first = first
        self._usual = {*first.writes[:start], *first.writes[end:], running, Write("PATCH workloads PodsReady Started")}

    def at(self, run: Run) -> list[Write]:
        """The writes of the run to be killed at.

        An event that was not posted is lost with the process, and counts alone are not written in each run.
        """
        writes = [write for write in run.writes if write.text != COUNTS and " events " not in write.text]
        if run is self._first:
            # Before it runs, the other writes are those of a job without a queue, where each of them has its kills.
            start = writes.index(Write("PATCH horovodjobs Running"))
            return [*(write for write in writes[:start] if "workloads" in write.text), *writes[start:]]
        return [write for write in writes if write not in self._usual and write.text.startswith(DECIDING)]


# Writes that create quota, pods or a phase, or end them. What the launcher needs is created as for each job.
COUNTS = "PATCH horovodjobs"
DECIDING = (*(f"{method} workloads" for method in ("POST", "PATCH", "DELETE")), "PATCH horovodjobs", "DELETE pods")


def differences(lanes: Lanes) -> list[str]:
    """How courses with kills before and after each of their writes end otherwise than without, as sentences."""
    first = Course(queue_stopped)
    case = Case(first.submit, first.run)
    kills = Kills(undisturbed := lanes.run(case))

    def difference(course: Course) -> str:
        case = Case(course.submit, course.run)
        try:
            run = undisturbed if course is first else lanes.run(case)
        except Exception as error:
            return f"{course.scenario.__name__} without kills: {error}"
        found = lanes.difference(case, run, kills_at(kills.at(run)))
        return f"{course.scenario.__name__}: {found}" if found else ""

    with ThreadPoolExecutor(len(COURSES) + 1) as pool:
        return [line for line in pool.map(difference, [first, *COURSES]) if line]


def leave_while_the_operator_is_dead(lanes: Lanes) -> None:
    """The operator dies when it has created a Workload, and the job leaves its queue: no Workload stays."""
    with lanes.free_lane() as lane:

        def kill(request: Request) -> Fault:
            is_creation = request.method == "POST" and request.path.endswith("/workloads")
            return Fault(after=lane.operator.kill, reset_after=True) if is_creation else NO_FAULT

        lane.proxy.fault = kill
        job = QUEUES[lane.namespace].submit("leaver")
        wait_for("the operator to be killed", lambda: not lane.operator.is_running)
        assert job.workload
        job.relabel(queue=None)
        lane.proxy.fault = lambda _: NO_FAULT
        lane.operator.restart()
        wait_for("its pods", job.pods)
        wait_for("its Workload to be deleted", lambda: job.workload == {})
        job.delete()
