"""What Argo CD, Flux and Helm report of jobs in every phase, as the end-to-end tests recorded them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from support.gitops.health import (
    GITOPS,
    HEALTH_SCRIPT,
    argocd_health,
    disagreements,
    expected_health,
    flux_health,
)
from support.gitops.samples import situation
from support.invariants import kstatus
from support.phases import PHASES

ARGOCD = GITOPS / "argocd"
SAMPLES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((ARGOCD / "testdata").glob("*.yaml"))}
CASES = {
    Path(case["inputPath"]).stem: case["healthStatus"]
    for case in yaml.safe_load((ARGOCD / "health_test.yaml").read_text())["tests"]
}


def test_kstatus_argo_cd_and_flux_agree_on_each_phase() -> None:
    assert SAMPLES.keys() == CASES.keys() == {"new", "changed", "stalled", *map(str.lower, PHASES)}
    assert all(situation(job) == name for name, job in SAMPLES.items())
    assert {name: argocd_health(job) for name, job in SAMPLES.items()} == CASES
    found = {
        name: (result, argocd_health(job)["status"], flux_health(job))
        for (name, job), result in zip(SAMPLES.items(), kstatus(list(SAMPLES.values())), strict=True)
    }
    assert found == {name: expected_health(job) for name, job in SAMPLES.items()}
    # The check of the end-to-end tests.
    assert list(disagreements(SAMPLES.values())) == []
    running = SAMPLES["running"]
    assert list(disagreements([{**running, "status": {**running["status"], "phase": "Succeeded"}}]))


@pytest.mark.parametrize("status", [None, {"observedGeneration": -1}, {"observedGeneration": 1}], ids=str)
def test_a_job_that_the_operator_has_not_observed_is_progressing(status: dict[str, int] | None) -> None:
    job = {"metadata": {"generation": 1}} | ({"status": status} if status else {})
    assert argocd_health(job)["status"] == "Progressing"
    if status:  # the CRD's default; without any status the expressions fail, and Flux waits
        assert flux_health(job) == "InProgress"


def test_argo_cds_configmap_has_the_script() -> None:
    data = yaml.safe_load((ARGOCD / "argocd-cm.yaml").read_text())["data"]
    assert data == {"resource.customizations.health.horovodjob.dev_HorovodJob": HEALTH_SCRIPT.read_text()}


def test_jobs_hold_no_worker_of_flux() -> None:
    release = list(yaml.safe_load_all((GITOPS / "flux" / "job" / "release.yaml").read_text()))[-1]["spec"]
    assert release["install"]["disableWait"]
    assert release["upgrade"]["disableWait"]
    assert not yaml.safe_load((GITOPS / "flux" / "jobs.yaml").read_text())["spec"].get("wait")
