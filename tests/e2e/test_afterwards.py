"""What must have been true of every job at every moment of the session, and of the operator as a whole."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from itertools import pairwise

import pytest

from cluster.settings import Cluster
from e2e.access import Object, wait_for
from e2e.install import Operator, Target
from e2e.recorder import Recorder
from e2e.space import FINISHED, PREFIX

EDGES = {
    "": {"Queued", "Starting", "Suspended", "Terminating"},
    "Queued": {"Starting", "Running", "Restarting", "Suspended", "Terminating", "Succeeded", "Failed"},
    "Starting": {"Running", "Restarting", "Suspended", "Terminating", "Succeeded", "Failed"},
    "Running": {"Restarting", "Suspended", "Terminating", "Succeeded", "Failed"},
    "Restarting": {"Queued", "Starting", "Running", "Suspended", "Terminating", "Succeeded", "Failed"},
    "Suspended": {"Queued", "Starting", "Running", "Terminating"},
    "Terminating": {"Failed", "Succeeded"},
    "Succeeded": set(),
    "Failed": set(),
}
TRUE_IN = {
    "Queued": {"Queued"},
    "Starting": set(),
    "Running": {"Running", "Prepared", "Ready"},
    "Restarting": set(),
    "Suspended": {"Suspended", "Ready"},
    "Terminating": set(),
    "Succeeded": {"Succeeded", "Ready"},
    "Failed": {"Failed", "Stalled"},
}
IN_PROGRESS = ("Queued", "Starting", "Restarting", "Terminating")
COUNTERS = ("attempt", "restarts", "preemptions")


@pytest.fixture(scope="module")
def histories(jobs: Recorder) -> list[list[Object]]:
    """The versions of each job of this session, as the operator left them."""
    found = [list(versions) for versions in jobs.history.values()]
    return [versions for versions in found if versions[0]["metadata"]["namespace"].startswith(PREFIX)]


def _written(histories: list[list[Object]]) -> Iterator[tuple[str, Object, Object]]:
    """Each status that followed another one, with the job's name."""
    for versions in histories:
        name = f"{versions[0]['metadata']['namespace']}/{versions[0]['metadata']['name']}"
        for old, new in pairwise(versions):
            if "phase" in new.get("status", {}):
                yield name, old, new


def test_there_is_something_to_look_at_and_nothing_was_missed(histories: list[list[Object]], jobs: Recorder) -> None:
    assert jobs.gaps == 0
    if not any("phase" in versions[-1].get("status", {}) for versions in histories):
        pytest.skip("no job ran in this session")


def test_a_phase_follows_only_the_phases_it_may(histories: list[list[Object]]) -> None:
    for name, old, new in _written(histories):
        before, after = old["status"].get("phase", ""), new["status"]["phase"]
        assert before == after or after in EDGES[before], f"{name}: {before} -> {after}"


def test_a_terminal_status_never_changes(histories: list[list[Object]]) -> None:
    for name, old, new in _written(histories):
        if old["status"].get("phase") in FINISHED:
            assert old["status"] == new["status"], name


def test_conditions_always_agree_with_the_phase(histories: list[list[Object]]) -> None:
    for name, _, new in _written(histories):
        status = new["status"]
        true = {one["type"] for one in status["conditions"] if one["status"] == "True"}
        expected = TRUE_IN[status["phase"]]
        optional = {"Prepared"} if status["phase"] == "Starting" else set()
        if "elastic" in new["spec"]:
            # An elastic job goes on without workers, and says so.
            optional, expected = optional | {"Prepared"}, expected - {"Prepared"}
        if status["phase"] in IN_PROGRESS:
            assert len(true & {"Reconciling", "Stalled"}) == 1, f"{name}: {status['phase']} {true}"
            optional |= {"Reconciling", "Stalled"}
        assert expected <= true <= expected | optional, f"{name}: {status['phase']} {true}"
        for one in status["conditions"]:
            assert one["reason"], name
            assert one["observedGeneration"] == status["observedGeneration"], name


def test_counters_never_fall_and_attempts_are_counted_once(histories: list[list[Object]]) -> None:
    for name, old, new in _written(histories):
        before, after = ([version["status"].get(counter, 0) for counter in COUNTERS] for version in (old, new))
        grown = [new_count - old_count for old_count, new_count in zip(before, after, strict=True)]
        assert min(grown) >= 0, f"{name}: {before} -> {after}"
        if "elastic" in new["spec"]:
            grown[2] = 0  # It goes on without workers that are taken, in the same attempt.
        assert max(grown) <= 1, f"{name}: {before} -> {after}"
        assert sum(grown[1:]) <= grown[0], f"{name}: {before} -> {after}"


def test_times_are_in_order_and_errors_are_kept(histories: list[list[Object]]) -> None:
    for name, old, new in _written(histories):
        status, before = new["status"], old["status"]
        times = [status[key] for key in ("startTime", "runningTime", "completionTime") if key in status]
        assert times == sorted(times), f"{name}: {times}"
        since = {one["type"]: one["lastTransitionTime"] for one in before.get("conditions", ())}
        for one in status["conditions"]:
            assert one["lastTransitionTime"] >= since.get(one["type"], ""), f"{name}: {one}"
        assert status["observedGeneration"] >= before.get("observedGeneration", -1), name
        told, known = status.get("errors", []), before.get("errors", [])
        moments = [error["time"] for error in told]
        assert moments == sorted(moments), f"{name}: {moments}"
        assert known[-(len(told) or 1) :] == [error for error in told if error in known], f"{name}: an error is lost"


def test_no_write_left_a_job_as_it_was(histories: list[list[Object]]) -> None:
    for name, old, new in _written(histories):
        facts = [(version["status"], version["metadata"]["generation"]) for version in (old, new)]
        assert facts[0] != facts[1] or "deletionTimestamp" in new["metadata"], name


def test_kstatus_agrees_with_every_phase(histories: list[list[Object]]) -> None:
    program = Cluster().cache / "bin" / "kstatus"
    if not program.exists():
        pytest.skip("kstatus is not built")
    seen = [new for _, _, new in _written(histories)]
    seen = [one for one in seen if one["status"]["observedGeneration"] == one["metadata"]["generation"]]
    seen = [one for one in seen if "deletionTimestamp" not in one["metadata"]]
    given = "".join(json.dumps(one) for one in seen)
    done = subprocess.run([program], input=given, capture_output=True, text=True, check=True)
    answers = [line.partition("\t")[0] for line in done.stdout.splitlines()]
    assert len(answers) == len(seen)
    for one, answer in zip(seen, answers, strict=True):
        stalled = any(c["type"] == "Stalled" and c["status"] == "True" for c in one["status"]["conditions"])
        phase = one["status"]["phase"]
        wanted = "Failed" if stalled else "InProgress" if phase in IN_PROGRESS else "Current"
        assert answer == wanted, f"{one['metadata']['name']} is {phase}, and kstatus says {answer}"


def test_the_operator_writes_json_lines_without_traceback_or_refusal(operator: Operator) -> None:
    assert operator.lines
    for line in operator.lines:
        said = json.loads(line)
        assert {"time", "level", "message"} <= set(said) or said["level"] == "TEST", line
        assert "Traceback" not in line
        assert "403" not in said["message"].split(), line
        # An error in the log is a defect of the operator; what is wrong with jobs is in their conditions.
        assert said["level"] != "ERROR", line


def test_the_operator_was_never_refused_anything_that_it_has_no_right_to(target: Target) -> None:
    log = target.local.log / "audit.log" if target.local else None
    if log is None or not log.exists():
        pytest.skip("the API server's audit log is out of reach")
    refused = []
    with log.open() as lines:
        for line in lines:
            if '"decision":"forbid"' in line or '"authorization.k8s.io/decision":"forbid"' in line:
                event = json.loads(line)
                if "horovodjob-operator" in event["user"]["username"]:
                    refused.append((event["verb"], event["requestURI"]))
    assert not refused


def test_no_pod_of_a_job_that_is_gone_is_left(jobs: Recorder, pods: Recorder) -> None:
    def left() -> list[str]:
        alive = {job["metadata"]["uid"] for job in list(jobs.now.values())}
        own = [pod for pod in list(pods.now.values()) if pod["metadata"]["namespace"].startswith(PREFIX)]
        return [
            pod["metadata"]["name"]
            for pod in own
            if not any(owner["uid"] in alive for owner in pod["metadata"].get("ownerReferences", ()))
        ]

    wait_for("no pod without its job", lambda: not left(), 90)
