"""Invariants of each recorded status of a job, and of each transition. Pure except for kstatus."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from e2e.access import Object
from localcluster.settings import cache_directory
from support.gitops.health import disagreements

EDGES = {
    # Queued and Starting are written only if they last.
    "": {"Queued", "Starting", "Running", "Restarting", "Suspended", "Terminating", "Succeeded", "Failed"},
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
FINISHED = ("Succeeded", "Failed")
IN_PROGRESS = ("Queued", "Starting", "Restarting", "Terminating")
COUNTERS = ("attempt", "restarts", "preemptions")


def violations(histories: Sequence[Sequence[Object]]) -> list[str]:
    """Violations over all versions of jobs, as sentences; the oldest version of each job comes first."""
    found = [words for history in histories for words in _of_one_job(history)]
    versions = [version for history in histories for version in history]
    if program := kstatus_program():
        found += kstatus_violations(program, versions)
    return found + list(disagreements(versions))


def _of_one_job(history: Sequence[Object]) -> Iterator[str]:
    job = history[0]["metadata"]
    for old, new in pairwise(history):
        if "phase" not in new.get("status", {}):
            continue
        for check in CHECKS:
            yield from (f"{job['namespace']}/{job['name']}: {words}" for words in check(old, new))


def a_phase_follows_only_the_phases_it_may(old: Object, new: Object) -> Iterator[str]:
    before, after = _status(old).get("phase", ""), new["status"]["phase"]
    if before != after and after not in EDGES[before]:
        yield f"phase {after!r} after {before!r}"


def a_terminal_status_never_changes(old: Object, new: Object) -> Iterator[str]:
    generation = {"observedGeneration": new["status"].get("observedGeneration")}
    if _status(old).get("phase") in FINISHED and old["status"] | generation != new["status"]:
        yield f"the terminal status {old['status']} became {new['status']}"


def conditions_agree_with_the_phase(_: Object, new: Object) -> Iterator[str]:
    status, phase = new["status"], new["status"]["phase"]
    true = {one["type"] for one in status["conditions"] if one["status"] == "True"}
    expected = TRUE_IN[phase]
    optional = {"Prepared"} if phase == "Starting" else set()
    if "elastic" in new["spec"]:
        # An elastic job keeps running while workers are missing, and reports it.
        optional, expected = optional | {"Prepared"}, expected - {"Prepared"}
    if phase in IN_PROGRESS:
        if len(true & {"Reconciling", "Stalled"}) != 1:
            yield f"in phase {phase} not exactly one of Reconciling and Stalled is True: {sorted(true)}"
        optional |= {"Reconciling", "Stalled"}
    if not expected <= true <= expected | optional:
        yield f"in phase {phase} {sorted(true)} are True"
    for one in status["conditions"]:
        if not one["reason"]:
            yield f"a condition without a reason: {one}"
        if one["observedGeneration"] != status["observedGeneration"]:
            yield f"a condition of another generation than the status's {status['observedGeneration']}: {one}"


def counters_never_fall_and_attempts_are_counted_once(old: Object, new: Object) -> Iterator[str]:
    before, after = ([_status(version).get(counter, 0) for counter in COUNTERS] for version in (old, new))
    grown = [new_count - old_count for old_count, new_count in zip(before, after, strict=True)]
    fell = min(grown) < 0
    if "elastic" in new["spec"]:
        grown[2] = 0  # An elastic job loses workers within an attempt.
    if fell or max(grown) > 1 or sum(grown[1:]) > grown[0]:
        yield f"{COUNTERS} went from {before} to {after}"


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


def errors_are_kept(old: Object, new: Object) -> Iterator[str]:
    reported, known = new["status"].get("errors", []), _status(old).get("errors", [])
    moments = [error["time"] for error in reported]
    if moments != sorted(moments):
        yield f"the times of the errors are {moments}"
    if known[-(len(reported) or 1) :] != [error for error in reported if error in known]:
        yield f"an error is lost: {known} became {reported}"


def no_write_leaves_a_job_as_it_was(old: Object, new: Object) -> Iterator[str]:
    facts = [(version.get("status"), version["metadata"]["generation"]) for version in (old, new)]
    if facts[0] == facts[1] and "deletionTimestamp" not in new["metadata"]:
        yield f"version {new['metadata']['resourceVersion']} differs in nothing from the one before"


CHECKS = (
    a_phase_follows_only_the_phases_it_may,
    a_terminal_status_never_changes,
    conditions_agree_with_the_phase,
    counters_never_fall_and_attempts_are_counted_once,
    times_are_in_order,
    errors_are_kept,
    no_write_leaves_a_job_as_it_was,
)


def _status(version: Object) -> Object:
    status: Object = version.get("status", {})
    return status


def kstatus_program() -> str | None:
    """The program that computes the kstatus result of an object: built with the local cluster, or on PATH."""
    return shutil.which("kstatus", path=os.pathsep.join([str(cache_directory() / "bin"), os.environ.get("PATH", "")]))


def kstatus_violations(program: str | Path, versions: Sequence[Object]) -> Iterator[str]:
    """Versions with a kstatus result that does not match their phase, as sentences."""
    seen = [one for one in versions if "phase" in _status(one) and "deletionTimestamp" not in one["metadata"]]
    seen = [one for one in seen if one["status"]["observedGeneration"] == one["metadata"]["generation"]]
    given = "".join(json.dumps(one) for one in seen)
    done = subprocess.run([program], input=given, capture_output=True, text=True, check=True)
    answers = [line.partition("\t")[0] for line in done.stdout.splitlines()]
    for one, answer in zip(seen, answers, strict=True):
        stalled = any(c["type"] == "Stalled" and c["status"] == "True" for c in one["status"]["conditions"])
        phase = one["status"]["phase"]
        wanted = "Failed" if stalled else "InProgress" if phase in IN_PROGRESS else "Current"
        if answer != wanted:
            yield f"{one['metadata']['namespace']}/{one['metadata']['name']} is {phase}, and kstatus says {answer}"
