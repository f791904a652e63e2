"""Jobs as Helm releases, with the operator and real pods."""

from __future__ import annotations

import json
from typing import Any

from charts.helm import Helm
from e2e import phases
from e2e.access import wait_for
from e2e.install import CHARTS
from e2e.space import Space

INSTALL = ("upgrade", "--install", "train", str(CHARTS / "horovodjob"), "--wait", "--timeout=15m")


def values(space: Space, command: list[str] | str, **spec: Any) -> tuple[str, ...]:
    """Options of Helm for a small job."""
    fields = space.job("train", command, **spec)["spec"]
    return ("--namespace", space.name, *(f"--set-json={name}={json.dumps(value)}" for name, value in fields.items()))


def phase(space: Space) -> str:
    """The phase of the job, from the API server."""
    job = space.api.get(f"/apis/horovodjob.dev/v1beta1/namespaces/{space.name}/horovodjobs/train") or {}
    return str(job["status"]["phase"])


def test_install_waits_until_the_job_runs_and_uninstall_removes_it(space: Space, helm: Helm) -> None:
    helm(*INSTALL, *values(space, phases.WAIT))
    assert phase(space) == "Running"
    helm("uninstall", "train", "--namespace", space.name)
    wait_for("neither the job nor its pods", lambda: not space.find("train") and not space.pods("train"))


def test_install_fails_when_the_job_fails_before_it_runs(space: Space, helm: Helm) -> None:
    policy = {"backoffLimit": 0}
    refusal = helm.refusal(*INSTALL, *values(space, ["true"], preparation={"command": "false"}, runPolicy=policy))
    assert f"HorovodJob/{space.name}/train" in refusal
    assert phase(space) == "Failed"


def test_upgrades_change_and_resume_a_suspended_job_and_no_other(space: Space, helm: Helm) -> None:
    helm(*INSTALL, *values(space, ["false"], runPolicy={"suspend": True}))
    assert phase(space) == "Suspended"
    helm(*INSTALL, *values(space, phases.WAIT))
    assert phase(space) == "Running"
    assert "can change only while it is" in helm.refusal(*INSTALL, *values(space, ["true"]))
    space.release("train-worker-0")
    space.wait_phase("train", "Succeeded")
    assert "never runs again" in helm.refusal(*INSTALL, *values(space, ["true"]))
