"""Failover with jobs in each phase: under the new leader, each job continues as if nothing had happened."""

import itertools
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from horovodjob_operator.controller.jobs.status_writer import COUNTS_SECONDS
from integration.process.half_open_proxy import HalfOpenProxy
from integration.process.leader_election import Pair, credential_of, leader_and_standby, writes
from integration.scenarios import run_next_attempt
from support.api_client import Api, wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.control_plane.watch_threads import Recorder
from support.job_driver import Job, submit
from support.operator_process import Operator

# The phase of a job during the failover; `New`: the leader may not have seen it.
PHASES = ("New", "Queued", "Starting", "Running", "Restarting", "Suspended")
WAYS = ("terminated", "killed", "paused")
WORKERS = {"worker-0", "worker-1"}
# Phases that the operator leaves out when the job is already in a later one.
OPTIONAL_PHASES = ("", "Queued", "Starting")


def fail(job: Job) -> None:
    """A rank fails: the job restarts."""
    job.end("launcher", 1, message="boom")
    job.skip_backoff()
    run_next_attempt(job)


def evict(job: Job) -> None:
    """A node is drained: the job restarts."""
    job.evict("worker-1")
    job.skip_backoff()
    run_next_attempt(job)


def suspend_and_resume(job: Job) -> None:
    """The job gives its nodes back, and gets them again."""
    job.suspend()
    job.wait("Suspended")
    wait_for("its pods to be deleted", lambda: not job.pods())
    job.suspend(False)
    job.wait("Queued")
    job.advance_to("Running", since="Queued")


@dataclass(frozen=True, slots=True)
class Course:
    """What happens to a running job under the new leader, and what it adds to the status."""

    happen: Callable[[Job], None]
    phases: tuple[str, ...]
    errors: tuple[str, ...]
    kept_workers: frozenset[str]


COURSES = {
    "fails": Course(fail, ("Restarting", "Running"), ("RankFailed",), frozenset(WORKERS)),
    "evicted": Course(evict, ("Restarting", "Running"), ("Evicted",), frozenset({"worker-0"})),
    "suspended": Course(suspend_and_resume, ("Suspended", "Running"), (), frozenset()),
}


class Training:
    """A job that is in one phase during the failover, and its course afterwards."""

    def __init__(self, api: Api, namespace: str, phase: str, course: str) -> None:
        self.phase, self.course, self.name = phase, course, f"{phase}-{course}".lower()
        self._api, self._namespace = api, namespace
        self.uids: dict[str, str] = {}

    def submit(self) -> None:
        self.job = submit(self._api, self._namespace, self.name)

    def prepare(self) -> None:
        """Advances the job to its phase."""
        job = self.job
        job.advance_to("Running" if self.phase in ("Suspended", "Terminating") else self.phase)
        if self.phase == "Suspended":
            job.suspend()
            job.wait("Suspended")
            wait_for("its pods to be deleted", lambda: not job.pods())
        if self.phase == "Terminating":
            job.api.patch(f"{job.pods_path}/{job.name}-worker-0", {"metadata": {"finalizers": ["example.com/hold"]}})
            job.edit_policy(terminate=True)
            job.wait("Terminating")
        self.uids = job.uids()

    def finish(self) -> str:
        """Lets the job end under the new leader; returns what differs from an undisturbed job."""
        try:
            if self.course == "deleted":
                return self._delete()
            if self.course == "terminated":
                return self._terminate()
            return self._succeed(COURSES[self.course])
        except AssertionError as error:
            message = self.job.condition("Stalled").get("message")
            return f"{str(error).partition(';')[0]}: {message}"

    def _delete(self) -> str:
        self.job.delete()
        wait_for("the job to be deleted", lambda: self.job.api.find(self.job.path) is None)
        wait_for("its pods to be deleted", lambda: not self.job.pods())
        return ""

    def _terminate(self) -> str:
        job = self.job
        job.api.patch(f"{job.pods_path}/{job.name}-worker-0", {"metadata": {"finalizers": None}})
        status = job.wait("Failed")
        found = (job.condition("Failed")["reason"], status["attempt"], status.get("errors", []), set(job.pods()))
        return "" if found == ("Terminated", 1, [], {"launcher"}) else str(found)

    def _succeed(self, course: Course) -> str:
        job = self.job
        self._run()
        running = job.uids()
        kept = self.uids if self.phase in ("Queued", "Starting", "Running") else {}
        if {role: running[role] for role in kept} != kept:
            return f"the pods were {self.uids}, and are {running}"
        course.happen(job)
        final = job.uids()
        if {role for role in WORKERS if final[role] == running[role]} != course.kept_workers:
            return f"the pods were {running}, and are {final}"
        job.end("launcher", 0)
        status = job.wait("Succeeded")
        errors = [error["reason"] for error in status.get("errors", ())]
        found = (status["attempt"], status["restarts"], status["preemptions"], errors)
        wanted = self._counts(course)
        return "" if found == wanted else f"attempt, restarts, preemptions and errors are {found}, not {wanted}"

    def _run(self) -> None:
        """Advances the job from its phase to Running."""
        if self.phase == "Restarting":
            self.job.skip_backoff()
            run_next_attempt(self.job)
            return
        if self.phase == "Suspended":
            self.job.suspend(False)
        since = {"Queued": "Queued", "Starting": "Starting", "Running": "Running"}.get(self.phase, "")
        self.job.advance_to("Running", since=since)

    def _counts(self, course: Course) -> tuple[int, int, int, list[str]]:
        errors = ["RankFailed"] * (self.phase == "Restarting") + [*course.errors]
        suspensions = (self.phase == "Suspended") + ("Suspended" in course.phases)
        return 1 + len(errors) + suspensions, errors.count("RankFailed"), errors.count("Evicted"), errors

    def wrong_phases(self, recorder: Recorder) -> str:
        """The recorded phases, if they differ from those of an undisturbed job."""
        if self.course not in COURSES:
            return ""
        recorded = (version["status"].get("phase", "") for version in recorder.versions[self.job.uid])
        found = [phase for phase, _ in itertools.groupby(recorded) if phase not in OPTIONAL_PHASES]
        before = {"Restarting": ("Running", "Restarting"), "Suspended": ("Running", "Suspended")}.get(self.phase, ())
        wanted = [*before, "Running", *COURSES[self.course].phases, "Succeeded"]
        return "" if found == wanted else f"the phases are {found}, not {wanted}"


@pytest.fixture
def trainings(api: Api, namespace: str, how: str) -> list[Training]:
    """A third of the pairs of phase and course: each phase and each course is in each third."""
    cases = [(phase, course) for phase in PHASES for course in (*COURSES, "deleted")][WAYS.index(how) :: len(WAYS)]
    return [Training(api, namespace, *case) for case in (*cases, ("Terminating", "terminated"))]


@pytest.fixture
def pool(trainings: list[Training]) -> Iterator[ThreadPoolExecutor]:
    """A thread for each job."""
    with ThreadPoolExecutor(len(trainings)) as started:
        yield started


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


@pytest.fixture
def end_leader(
    pair: Pair, proxies: list[HalfOpenProxy], control_plane: OperatorControlPlane, tmp_path: Path
) -> Callable[[str, Callable[[], None]], None]:
    """Ends or pauses the leader, and waits for the next one. A paused leader then continues, and writes nothing.

    The jobs that `submit_new` creates are new to the leader, or to the next one.
    """
    one, two = pair
    credential = credential_of(tmp_path / "one.yaml")

    def end(how: str, submit_new: Callable[[], None]) -> None:
        if how == "paused":  # while no request of it is on its way
            wait_until_quiet(lambda: len([each for each in writes(control_plane, credential) if "leases" not in each]))
            one.send(signal.SIGSTOP)
        submit_new()
        match how:
            case "terminated":
                assert one.stop() == 0
            case "killed":  # in a partition of the network that leaves the standby with half-open connections
                proxies[0].go_silent()
                one.kill()
        wait_for("the standby to lead", lambda: two.is_leader and two.get("/readyz")[0] == 200)
        if how == "paused":
            before = len(writes(control_plane, credential))
            one.send(signal.SIGCONT)
            assert one.wait_for_exit()[0].startswith("ERROR: lease: lost")
            assert set(writes(control_plane, credential)[before:]) <= {"update leases"}

    return end


@pytest.mark.parametrize("how", WAYS)
def test_a_failover_does_not_disturb_jobs_in_any_phase(
    end_leader: Callable[[str, Callable[[], None]], None],
    trainings: list[Training],
    pool: ThreadPoolExecutor,
    recorder: Recorder,
    namespace: str,
    how: str,
) -> None:
    new = [training for training in trainings if training.phase == "New"]
    old = [training for training in trainings if training not in new]
    for training in old:
        training.submit()
    list(pool.map(Training.prepare, old))

    def submit_new() -> None:
        for training in new:
            training.submit()

    end_leader(how, submit_new)
    differences = list(pool.map(Training.finish, trainings))
    recorder.catch_up(namespace)
    pairs = zip(trainings, differences, strict=True)
    lines = [f"{one.name}: {found or one.wrong_phases(recorder)}" for one, found in pairs]
    if wrong := [line for line in lines if not line.endswith(": ")]:
        pytest.fail("\n".join(wrong), pytrace=False)
