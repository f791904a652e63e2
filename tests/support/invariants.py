"""Invariants of each recorded status of a job, and of each transition."""

import json
import subprocess
from collections.abc import Iterator, Sequence

from support.api_client import Object, binary

TRUE_IN_PHASE = {
    "Queued": {"Queued", "Reconciling"},
    "Starting": {"Reconciling"},
    "Running": {"Running", "Ready", "Prepared"},
    "Restarting": {"Reconciling"},
    "Suspended": {"Suspended", "Ready"},
    "Terminating": {"Reconciling"},
    "Succeeded": {"Succeeded", "Ready"},
    "Failed": {"Failed", "Stalled"},
}
EXECUTION_STATES = {"Queued": "queued", "Starting": "running", "Running": "running", "Restarting": "queued"}
KSTATUS = {"Running": "Current", "Suspended": "Current", "Succeeded": "Current", "Failed": "Failed"}
FINISHED = ("Succeeded", "Failed")


def violations(history: Sequence[Object]) -> Iterator[str]:
    """Violations over all versions of a job, as sentences."""
    history = tuple(history)  # the recorder may be adding to it
    for stored, result in zip(history, kstatus(history), strict=True):
        status = stored["status"]
        phase = status.get("phase")
        true = {c["type"] for c in status.get("conditions", ()) if c["status"] == "True"}
        if result != expected_kstatus(stored):
            yield f"kstatus returns {result} for {phase} with {true}"
        if phase:
            yield from _violations_of(status, true)
    ends = [without_generation(one["status"]) for one in history if one["status"].get("phase") in FINISHED]
    yield from (f"a finished job changed from {ends[0]} to {other}" for other in ends if other != ends[0])


def without_generation(status: Object) -> Object:
    """A status without its observed generation, which may change after the end."""
    return {key: value for key, value in status.items() if key != "observedGeneration"}


def _violations_of(status: Object, true: set[str]) -> Iterator[str]:
    phase = status["phase"]
    wanted = set(TRUE_IN_PHASE[phase])
    if "Stalled" in true and phase not in FINISHED:
        wanted = (wanted | {"Stalled"}) - {"Reconciling"}
    if true - {"Prepared"} != wanted - {"Prepared"} or ("Prepared" in true and phase not in ("Starting", "Running")):
        yield f"in phase {phase} {sorted(true)} are True"
    if EXECUTION_STATES.get(phase, status["executionState"]) != status["executionState"]:
        yield f"phase {phase} is {status['executionState']}"
    if any(c["observedGeneration"] > status["observedGeneration"] for c in status["conditions"]):
        yield "a condition has a generation that the status has not observed"
    if ("completionTime" in status) != (phase in FINISHED):
        yield f"completionTime in phase {phase}"


def expected_kstatus(stored: Object) -> str:
    """The kstatus result that this version of the job must have."""
    status = stored["status"]
    true = {c["type"] for c in status.get("conditions", ()) if c["status"] == "True"}
    if stored["metadata"].get("deletionTimestamp"):
        return "Terminating"
    if status["observedGeneration"] != stored["metadata"]["generation"]:
        return "InProgress"
    if "Stalled" in true:
        return "Failed"
    return KSTATUS.get(status.get("phase", ""), "InProgress")


def kstatus(objects: Sequence[Object]) -> list[str]:
    """The result of kstatus, the library that Helm and Flux use, for each object."""
    text = "\n".join(json.dumps(one) for one in objects)
    done = subprocess.run([binary("kstatus")], input=text, capture_output=True, text=True, check=True)
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]
