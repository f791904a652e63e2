"""Recorded versions of jobs, one for each state that GitOps tools distinguish."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import yaml

from support.gitops.health import Object

# kubectl shows the first only on request; the second repeats the spec.
HIDDEN = {"managedFields", "annotations"}


def situation(job: Object) -> str:
    """The phase of a job in lower case, or `new`, `changed` or `stalled`."""
    status = job["status"]
    if status["observedGeneration"] != job["metadata"]["generation"]:
        return "changed" if "phase" in status else "new"
    stalled = any(one["type"] == "Stalled" and one["status"] == "True" for one in status["conditions"])
    return "stalled" if stalled and status["phase"] != "Failed" else str(status["phase"]).lower()


def write_samples(histories: Iterable[Iterable[Object]], directory: Path) -> None:
    """Writes the first version in each state, if possible of the job with its name (`e2e.phases`)."""
    first: dict[str, Object] = {}
    for job in sorted(itertools.chain(*histories), key=lambda job: bool(job["metadata"]["name"] != situation(job))):
        first.setdefault(situation(job), job)
    for name, job in first.items():
        metadata = {key: value for key, value in job["metadata"].items() if key not in HIDDEN}
        (directory / f"{name}.yaml").write_text(yaml.safe_dump({**job, "metadata": metadata}, width=120))
