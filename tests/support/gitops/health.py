"""Health of a HorovodJob as Argo CD and Flux compute it from what manifests/gitops has."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import celpy
import yaml
from celpy.adapter import json_to_cel
from lupa.lua51 import LuaRuntime  # type: ignore[import-untyped]

from support.phases import IN_PROGRESS, PHASES, STALLED

Object = dict[str, Any]
GITOPS = Path(__file__).resolve().parents[3] / "manifests" / "gitops"
HEALTH_SCRIPT = GITOPS / "argocd" / "health.lua"
FLUX_JOBS = GITOPS / "flux" / "jobs.yaml"
FLUX_RESULTS = GITOPS / "flux" / "results.yaml"

# The libraries of health scripts in Argo CD; methods of strings are not available either.
ONLY_BASE_AND_TABLE = """
getmetatable('').__index = nil
string, math, io, os, debug, coroutine, python, newproxy = nil
"""


def expected_health(job: Object) -> tuple[str, str, str]:
    """The expected health of a job in kstatus, Argo CD and Flux."""
    status = job["status"]
    if status["observedGeneration"] != job["metadata"]["generation"]:
        return IN_PROGRESS
    if any(one["type"] == "Stalled" and one["status"] == "True" for one in status["conditions"]):
        return STALLED
    return PHASES[status["phase"]].health


def argocd_health(job: Object, script: str = "") -> dict[str, str]:
    """Status and message that Argo CD's health script returns."""
    runtime = LuaRuntime(register_eval=False, register_builtins=False)
    runtime.execute(ONLY_BASE_AND_TABLE)
    runtime.globals().obj = runtime.table_from(job, recursive=True)
    return dict(runtime.execute(script or _health_script()))


def flux_health(job: Object) -> str:
    """Result of Flux' health check: the rules of its RFC 0009 around the CEL expressions of the Kustomization."""
    status, metadata = job.get("status", {}), job["metadata"]
    if status.get("observedGeneration", metadata.get("generation")) != metadata.get("generation"):
        return "InProgress"
    variables = {name: json_to_cel(value) for name, value in job.items()}
    for result, expression in _flux_expressions().items():
        if expression.evaluate(variables):
            return result
    return "InProgress"


def disagreements(jobs: Iterable[Object]) -> Iterator[str]:
    """Jobs with a health in Argo CD or Flux that contradicts their phase, as sentences."""
    for job in jobs:
        found = (argocd_health(job)["status"], _flux_health_of_facts(*_facts(job)))
        if found != (expected := expected_health(job)[1:]):
            name, phase = f"{job['metadata']['namespace']}/{job['metadata']['name']}", job["status"].get("phase")
            yield f"{name} in phase {phase}: Argo CD and Flux say {found}, not {expected}"


def _facts(job: Object) -> tuple[int, int, tuple[tuple[str, str], ...]]:
    """The input of Flux' health check; thousands of statuses have few different ones."""
    status = job["status"]
    conditions = tuple((one["type"], one["status"]) for one in status.get("conditions", ()))
    return job["metadata"]["generation"], status["observedGeneration"], conditions


@functools.cache
def _flux_health_of_facts(generation: int, observed: int, conditions: tuple[tuple[str, str], ...]) -> str:
    listed = {"conditions": [{"type": type_, "status": status} for type_, status in conditions]} if conditions else {}
    return flux_health({"metadata": {"generation": generation}, "status": {"observedGeneration": observed} | listed})


@functools.cache
def _health_script() -> str:
    return HEALTH_SCRIPT.read_text()


@functools.cache
def _flux_expressions() -> Mapping[str, celpy.Runner]:
    """The programs by their result, in the order in which Flux evaluates them."""
    (checks,) = yaml.safe_load(FLUX_RESULTS.read_text())["spec"]["healthCheckExprs"]
    environment = celpy.Environment()
    results = {"inProgress": "InProgress", "failed": "Failed", "current": "Current"}
    return {
        result: environment.program(environment.compile(checks[name]))
        for name, result in results.items()
        if name in checks
    }
