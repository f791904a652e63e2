"""Tests of the invariant checks. No cluster is needed."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from support.api_client import Object
from support.invariants import CHECKS, false_alarms
from support.phases import FINISHED, PHASES

NOON, LATER = "2026-01-01T12:00:00Z", "2026-01-01T12:00:09Z"
ERROR = {"reason": "WorkerLost", "time": NOON}


def _version(phase: str, *true: str, **status: Any) -> Object:
    """A version of a job; these conditions are True."""
    common = {"reason": "Any", "observedGeneration": 1, "lastTransitionTime": NOON}
    conditions = [{"type": one, "status": "True", **common} for one in true]
    others: Object = {"attempt": 1, "restarts": 0, "preemptions": 0}
    others |= {"executionState": PHASES[phase].execution_state}
    if phase in FINISHED:
        others["completionTime"] = LATER
    return {
        "metadata": {"namespace": "team", "name": "train", "generation": 1, "resourceVersion": "7"},
        "spec": {},
        "status": {"phase": phase, "observedGeneration": 1, "conditions": conditions, **others, **status},
    }


STARTING = _version("Starting", "Reconciling", startTime=NOON)
RUNNING = _version("Running", "Running", "Prepared", "Ready", startTime=NOON, runningTime=LATER, errors=[ERROR])
FAILED = _version("Failed", "Failed", "Stalled", startTime=NOON, errors=[ERROR])
READY = {"type": "Ready", "status": "False", "reason": "Any", "observedGeneration": 1, "lastTransitionTime": NOON}
NOT_READY = {**FAILED, "status": FAILED["status"] | {"conditions": [*FAILED["status"]["conditions"], READY]}}


def _found(old: Object, new: Object) -> list[str]:
    return [check.__name__ for check in CHECKS if list(check(old, new))]


def _with(version: Object, **status: Any) -> Object:
    changed = copy.deepcopy(version)
    changed["status"] |= status
    return changed


@pytest.mark.parametrize(
    ("old", "new", "check"),
    [
        (RUNNING, _version("Starting", "Reconciling", errors=[ERROR]), "a_phase_follows_only_the_phases_it_may"),
        (FAILED, _with(FAILED, exitCode=4), "a_terminal_status_never_changes"),
        (STARTING, _version("Running", "Running", "Prepared"), "conditions_agree_with_the_phase"),
        (STARTING, _with(RUNNING, executionState="queued"), "the_execution_state_is_that_of_the_phase"),
        (STARTING, _with(RUNNING, completionTime=LATER), "a_job_has_a_completion_time_when_it_has_ended"),
        (STARTING, _with(RUNNING, attempt=3), "counters_never_fall_and_attempts_are_counted_once"),
        (STARTING, _with(RUNNING, startTime=LATER, runningTime=NOON), "times_are_in_order"),
        (RUNNING, NOT_READY, "each_end_is_counted_in_a_series_that_begins_with_0"),
        (RUNNING, _with(FAILED, errors=[]), "errors_are_kept"),
        (RUNNING, RUNNING, "no_write_leaves_a_job_as_it_was"),
    ],
)
def test_each_violation_is_detected_by_its_own_check(old: Object, new: Object, check: str) -> None:
    assert _found(STARTING, RUNNING) == _found(RUNNING, FAILED) == []
    assert _found(old, new) == [check]


def test_a_stall_of_a_job_that_no_test_has_stopped_is_a_false_alarm() -> None:
    progressing = {**READY, "type": "Progressing", "reason": "TrainingStalled", "message": "no step"}
    history = [RUNNING, _with(RUNNING, conditions=[*RUNNING["status"]["conditions"], progressing])]
    assert false_alarms([history], {"train"}) == []
    assert false_alarms([history], {"another"}) == ["team/train: a false alarm: False TrainingStalled: no step"]
    continues = _with(RUNNING, conditions=[{**progressing, "status": "True"}])
    assert false_alarms([[continues]], ()) == []
