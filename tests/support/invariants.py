"""Invariants of each recorded version of a job, and of each change. Pure except for kstatus."""

import json
import subprocess
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise

from horovodjob_operator.metrics import FAILURE_REASONS, RESTART_REASONS
from support.api_client import Object, binary
from support.phases import FINISHED, IN_PROGRESS, PHASES, STALLED, may_be_stored_after

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
COUNTERS = ("attempt", "restarts", "preemptions")
Check = Callable[[Object, Object], Iterator[str]]


def violations(
    histories: Sequence[Sequence[Object]], kstatus_program: str | None, *, without: Collection[Check] = ()
) -> list[str]:
    """Violations over all versions of jobs, as sentences; the oldest version of each job comes first."""
    histories = [tuple(history) for history in histories]  # the recorder may be adding to them
    checks = [check for check in CHECKS if check not in without]
    found = [words for history in histories for words in _of_one_job(history, checks)]
    if kstatus_program:
        found += _kstatus_violations([version for history in histories for version in history], kstatus_program)
    return found


def false_alarms(histories: Sequence[Sequence[Object]], stalled: Collection[str]) -> list[str]:
    """What versions of jobs say about a training that makes no progress, but for jobs that a test has stopped."""
    versions = (version for history in histories for version in tuple(history))
    found = {
        f"{_name(version)}: a false alarm: {one['status']} {one['reason']}: {one['message']}": None
        for version in versions
        if version["metadata"]["name"] not in stalled
        for one in _status(version).get("conditions", ())
        if one["type"] == "Progressing" and one["status"] != "True"
    }
    return list(found)


def _of_one_job(history: Sequence[Object], checks: Sequence[Check]) -> Iterator[str]:
    for old, new in pairwise(history):
        if "phase" in _status(new):
            yield from (f"{_name(new)}: {words}" for check in checks for words in check(old, new))


def a_phase_follows_only_the_phases_it_may(old: Object, new: Object) -> Iterator[str]:
    before, after = _status(old).get("phase"), new["status"]["phase"]
    is_in_queue = any(QUEUE_LABEL in one["metadata"].get("labels", {}) for one in (old, new))
    if before != after and not may_be_stored_after(before, after, is_in_queue=is_in_queue):
        yield f"phase {after!r} after {before!r}"


def a_terminal_status_never_changes(old: Object, new: Object) -> Iterator[str]:
    """But for the quota that the queue of the job gets back later."""
    is_finished = _status(old).get("phase") in FINISHED
    if is_finished and _without_quota(old["status"]) != _without_quota(new["status"]):
        yield f"the terminal status {old['status']} became {new['status']}"


def conditions_agree_with_the_phase(_: Object, new: Object) -> Iterator[str]:
    status, phase = new["status"], new["status"]["phase"]
    true = _true(new)
    expected, optional = set(PHASES[phase].true), {"Prepared"} if phase == "Starting" else set()
    if "elastic" in new["spec"]:
        # An elastic job keeps running while workers are missing, and reports it.
        optional, expected = optional | {"Prepared"}, expected - {"Prepared"}
    if phase == "Running":
        optional = optional | {"Progressing"}  # once its program has reported
    if "Stalled" in true and phase not in FINISHED:
        expected = expected - {"Reconciling"} | {"Stalled"}
    if not expected <= true <= expected | optional:
        yield f"in phase {phase} {sorted(true)} are True"
    for one in status["conditions"]:
        if not one["reason"]:
            yield f"a condition without a reason: {one}"
        # The generation of a finished job follows the spec, and its conditions stay. So do those of a job with a spec
        # that the operator cannot read.
        stays = phase in FINISHED or "Stalled" in true
        is_older = one["observedGeneration"] < status["observedGeneration"] and not stays
        if is_older or one["observedGeneration"] > status["observedGeneration"]:
            yield f"a condition of another generation than the status's {status['observedGeneration']}: {one}"


def the_execution_state_is_that_of_the_phase(_: Object, new: Object) -> Iterator[str]:
    status, phase = new["status"], new["status"]["phase"]
    if status["executionState"] != PHASES[phase].execution_state:
        yield f"phase {phase} is {status['executionState']}"


def counters_never_fall_and_attempts_are_counted_once(old: Object, new: Object) -> Iterator[str]:
    # A job without a status is in its first attempt, which a refused pod can end.
    before, after = ([_status(version).get(each, each == "attempt") for each in COUNTERS] for version in (old, new))
    grown = [new_count - old_count for old_count, new_count in zip(before, after, strict=True)]
    fell = min(grown) < 0
    if "elastic" in new["spec"]:
        grown[2] = 0  # An elastic job loses workers within an attempt.
    if fell or max(grown) > 1 or sum(grown[1:]) > grown[0]:
        yield f"{COUNTERS} went from {before} to {after}"


def each_end_is_counted_in_a_series_that_begins_with_0(old: Object, new: Object) -> Iterator[str]:
    phase = new["status"]["phase"]
    reasons = {"Failed": FAILURE_REASONS, "Restarting": RESTART_REASONS}.get(phase)
    ready = next((one["reason"] for one in new["status"]["conditions"] if one["type"] == "Ready"), "")
    if reasons and ready and phase != _status(old).get("phase") and ready not in reasons:
        yield f"{phase} with the reason {ready}, of which no counter exists before: increase() misses the first"


def times_are_in_order(old: Object, new: Object) -> Iterator[str]:
    status, before = new["status"], _status(old)
    times = [status[key] for key in ("startTime", "runningTime", "completionTime") if key in status]
    if times != sorted(times):
        yield f"startTime, runningTime and completionTime are {times}"
    since = {one["type"]: one["lastTransitionTime"] for one in before.get("conditions", ())}
    for one in status["conditions"]:
        if one["lastTransitionTime"] < since.get(one["type"], ""):
            yield f"lastTransitionTime went back from {since[one['type']]}: {one}"
    if status["observedGeneration"] < before.get("observedGeneration", -1):
        yield f"observedGeneration went back to {status['observedGeneration']}"


def a_job_has_a_completion_time_when_it_has_ended(_: Object, new: Object) -> Iterator[str]:
    phase = new["status"]["phase"]
    if ("completionTime" in new["status"]) != (phase in FINISHED):
        yield f"phase {phase} {'has a' if 'completionTime' in new['status'] else 'has no'} completionTime"


def errors_are_kept(old: Object, new: Object) -> Iterator[str]:
    reported, known = new["status"].get("errors", []), _status(old).get("errors", [])
    moments = [error["time"] for error in reported]
    if moments != sorted(moments):
        yield f"the times of the errors are {moments}"
    if known[-(len(reported) or 1) :] != [error for error in reported if error in known]:
        yield f"an error is lost: {known} became {reported}"


def no_write_leaves_a_job_as_it_was(old: Object, new: Object) -> Iterator[str]:
    ignored = {"metadata": None, "status": None}
    metadata = [{**one["metadata"], "resourceVersion": "", "managedFields": None} for one in (old, new)]
    if metadata[0] == metadata[1] and _status(old) == _status(new) and old | ignored == new | ignored:
        yield f"version {new['metadata']['resourceVersion']} differs in nothing from the one before"


CHECKS: tuple[Check, ...] = (
    a_phase_follows_only_the_phases_it_may,
    a_terminal_status_never_changes,
    conditions_agree_with_the_phase,
    the_execution_state_is_that_of_the_phase,
    counters_never_fall_and_attempts_are_counted_once,
    a_job_has_a_completion_time_when_it_has_ended,
    each_end_is_counted_in_a_series_that_begins_with_0,
    times_are_in_order,
    errors_are_kept,
    no_write_leaves_a_job_as_it_was,
)
# What need not hold where a test writes a status itself, for example to backdate an error.
OF_THE_OPERATOR_ALONE: tuple[Check, ...] = (
    counters_never_fall_and_attempts_are_counted_once,
    times_are_in_order,
    errors_are_kept,
    no_write_leaves_a_job_as_it_was,
)


def without_generation(status: Object) -> Object:
    """A status without its observed generation, which may change after the end."""
    return {key: value for key, value in status.items() if key != "observedGeneration"}


def _without_quota(status: Object) -> Object:
    conditions = [one for one in status.get("conditions", ()) if one["type"] != "QuotaReleased"]
    return without_generation(status) | {"conditions": conditions}


def _status(version: Object) -> Object:
    status: Object = version.get("status", {})
    return status


def _name(version: Object) -> str:
    return f"{version['metadata']['namespace']}/{version['metadata']['name']}"


def _true(version: Object) -> set[str]:
    """The conditions that are True."""
    return {one["type"] for one in _status(version).get("conditions", ()) if one["status"] == "True"}


def kstatus(objects: Sequence[Object], program: str = "") -> list[str]:
    """The result of kstatus, the library that Helm and Flux use, for each object."""
    text = "\n".join(json.dumps(one) for one in objects)
    done = subprocess.run([program or binary("kstatus")], input=text, capture_output=True, text=True, check=True)
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]


def _expected_kstatus(version: Object) -> str:
    """The kstatus result that this version of the job must have."""
    status = _status(version)
    if version["metadata"].get("deletionTimestamp"):
        return "Terminating"
    if status.get("observedGeneration") != version["metadata"]["generation"]:
        return IN_PROGRESS[0]
    if "Stalled" in _true(version):
        return STALLED[0]
    return PHASES[status["phase"]].health[0] if "phase" in status else IN_PROGRESS[0]


def _kstatus_violations(versions: Sequence[Object], program: str) -> Iterator[str]:
    """Versions with a kstatus result that does not match their phase, as sentences."""
    for version, result in zip(versions, kstatus(versions, program), strict=True):
        if result != _expected_kstatus(version):
            yield f"{_name(version)} is {_status(version).get('phase')} with {_true(version)}; kstatus says {result}"
