"""What a commit does to a running job with each setting of the tools: a row of the table in docs/gitops.md."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from gitops.argocd import ArgoCD
from gitops.conftest import Cluster
from gitops.documented_output import PAGE
from gitops.engine import Delivery, Engine, runs
from gitops.flux import Flux
from gitops.git_repository import Repository, single_job_repository
from gitops.test_engines import only
from support.api_client import wait_for
from support.job_driver import Job

ON, BESIDE = "runs on", "runs on, beside the new one"
AGAIN, OTHER, NOTHING = "deleted, and created again", "deleted; the new one is created", "deleted; nothing is left"
REFUSED, INVALID = "can change only while the job is suspended", "Invalid value: 0"
FLUX_FORCE = {"kustomize.toolkit.fluxcd.io/force": "enabled"}
FLUX_KEEP = {"kustomize.toolkit.fluxcd.io/prune": "disabled"}
OPTIONS, COMPARE = "argocd.argoproj.io/sync-options", "argocd.argoproj.io/compare-options"
KEEP = {OPTIONS: "Prune=false,Delete=false", COMPARE: "IgnoreExtraneous"}


@dataclass(frozen=True)
class Setting:
    """A row: what happens to the job, and what the tool then says; without words it has applied the commit."""

    words: str
    changed: tuple[str, str]
    """When a commit changes the image."""
    invalid: tuple[str, str]
    """When a commit sets the replicas to 0."""
    annotations: dict[str, str] = field(default_factory=dict)
    delivery: dict[str, Any] = field(default_factory=dict)
    is_hashed: bool = False


SETTINGS: dict[type[Engine], tuple[Setting, ...]] = {
    Flux: (
        Setting(
            "name with a hash, `prune: disabled` (the example)", (BESIDE, ""), (ON, INVALID), FLUX_KEEP, is_hashed=True
        ),
        Setting("name with a hash", (OTHER, ""), (ON, INVALID), is_hashed=True),
        Setting("fixed name", (ON, REFUSED), (ON, INVALID)),
        Setting("`ssa: IfNotPresent`", (ON, ""), (ON, ""), {"kustomize.toolkit.fluxcd.io/ssa": "IfNotPresent"}),
        Setting("`force: enabled`", (ON, REFUSED), (NOTHING, INVALID), FLUX_FORCE),
        Setting("`spec.force` of the Kustomization", (ON, REFUSED), (NOTHING, INVALID), delivery={"force": True}),
    ),
    ArgoCD: (
        Setting("name with a hash, `Prune=false` (the example)", (BESIDE, ""), (ON, INVALID), KEEP, is_hashed=True),
        Setting("name with a hash", (OTHER, ""), (NOTHING, INVALID), is_hashed=True),
        Setting("fixed name", (ON, REFUSED), (ON, INVALID)),
        Setting(
            "`ServerSideDiff=true`",
            (ON, "error running server side apply in dryrun mode"),
            (ON, "error running server side apply in dryrun mode"),
            delivery={"annotations": {COMPARE: "ServerSideDiff=true"}},
        ),
        Setting("`Replace=true`", (ON, REFUSED), (ON, INVALID), {OPTIONS: "Replace=true"}),
        Setting("`Force=true,Replace=true`", (AGAIN, ""), (NOTHING, INVALID), {OPTIONS: "Force=true,Replace=true"}),
    ),
}


def outcome(delivery: Delivery, before: Job) -> str:
    """What has happened to a job that was running."""
    found = runs(delivery.api, delivery.namespace)
    others = [job for job in found if job.uid != before.uid]
    if len(others) < len(found):
        assert before.phase == "Running"
        return BESIDE if others else ON
    return NOTHING if not others else AGAIN if others[0].name == before.name else OTHER


def run_one(delivery: Delivery) -> Job:
    delivery.wait_applied()
    (job,) = runs(delivery.api, delivery.namespace)
    return job.advance_to("Running")


def test_a_commit_does_to_a_running_job_what_the_page_says(cluster: Cluster, deliver: Callable[..., Delivery]) -> None:
    cases = []
    for setting in SETTINGS[type(cluster.engine)]:
        make = functools.partial(single_job_repository, annotations=setting.annotations, is_hashed=setting.is_hashed)
        cases += [(setting, "changed", deliver(make=make, **setting.delivery))]
        cases += [(setting, "invalid", deliver(make=make, **setting.delivery))]
    before = [run_one(delivery) for _, _, delivery in cases]
    for setting, what, delivery in cases:
        old, new = ("trainer:1", "trainer:2") if what == "changed" else ("replicas: 1", "replicas: 0")
        delivery.repository.edit("jobs/job.yaml", old, new)
        delivery.push()
        words = getattr(setting, what)[1]
        if words:
            delivery.wait_message(words)
        else:
            delivery.wait_applied()
    found = {}
    for (setting, what, delivery), job in zip(cases, before, strict=True):
        expected = getattr(setting, what)[0]
        try:
            wait_for("the outcome", functools.partial(is_outcome, delivery, job, expected), seconds=120)
        except AssertionError:
            found[setting.words, what] = f"{outcome(delivery, job)}, not {expected}: {delivery.message()[:300]}"
    assert found == {}


def is_outcome(delivery: Delivery, job: Job, expected: str) -> bool:
    return outcome(delivery, job) == expected


ONCE: dict[type[Engine], tuple[dict[str, str], dict[str, Any]]] = {
    Flux: ({**FLUX_KEEP, "kustomize.toolkit.fluxcd.io/ssa": "IfNotPresent"}, {}),
    ArgoCD: (
        KEEP,
        {
            "ignoreDifferences": [
                {"group": "horovodjob.dev", "kind": "HorovodJob", "jsonPointers": ["/spec/worker/replicas"]}
            ],
            "syncPolicy": {
                "automated": {"prune": True, "selfHeal": True},
                "syncOptions": ["ServerSideApply=true", "RespectIgnoreDifferences=true"],
            },
        },
    ),
}


def scaled_and_ended(cluster: Cluster, delivery: Delivery) -> Job:
    """An elastic job that has succeeded with another size than that of Git."""
    job = run_one(delivery)
    scaled = cluster.api.kubectl(f"--namespace={job.namespace}", "scale", f"horovodjob/{job.name}", "--replicas=2")
    assert scaled.returncode == 0, scaled.stderr
    job.wait_for_pods()
    job.end("launcher", 0)
    job.wait("Succeeded")
    assert job.get()["spec"]["worker"]["replicas"] == 2
    return job


def make_elastic(repository: Repository) -> None:
    repository.edit("jobs/job.yaml", "  worker:\n", "  elastic: {minReplicas: 1, maxReplicas: 4}\n  worker:\n")


def test_an_elastic_job_that_was_scaled_and_has_ended_stands_in_the_way_of_no_commit(
    cluster: Cluster, deliver: Callable[..., Delivery]
) -> None:
    annotations, settings = ONCE[type(cluster.engine)]
    make = functools.partial(single_job_repository, annotations=annotations, is_hashed=True)
    delivery = deliver(make_elastic, make=make, **settings)
    job = scaled_and_ended(cluster, delivery)
    delivery.repository.edit("jobs/namespace.yaml", "metadata:\n", "metadata:\n  labels: {team: vision}\n")
    delivery.deploy()
    assert cluster.api.get(f"/api/v1/namespaces/{delivery.namespace}")["metadata"]["labels"]["team"] == "vision"
    assert outcome_of_end(delivery, job) == "Succeeded"


@only(Flux)
def test_an_elastic_job_that_was_scaled_and_has_ended_never_runs_again(
    cluster: Cluster, deliver: Callable[..., Delivery]
) -> None:
    make = functools.partial(single_job_repository, annotations=FLUX_KEEP, is_hashed=True)
    delivery = deliver(make_elastic, make=make)
    job = scaled_and_ended(cluster, delivery)
    delivery.push("nothing changes")
    delivery.wait_message("worker.replicas cannot change, because the job has ended")
    assert outcome_of_end(delivery, job) == "Succeeded"


def outcome_of_end(delivery: Delivery, job: Job) -> str:
    """The phase of the only job, which is still the same."""
    (left,) = runs(delivery.api, delivery.namespace)
    assert left.uid == job.uid
    return left.phase


@only(ArgoCD)
def test_server_side_diff_reports_a_refused_commit_as_synced(deliver: Callable[..., Delivery]) -> None:
    """The comparison after the one that has failed uses the result of the one before."""
    make = functools.partial(single_job_repository, annotations={}, is_hashed=False)
    delivery = deliver(make=make, annotations={COMPARE: "ServerSideDiff=true"})
    job = run_one(delivery)
    delivery.repository.edit("jobs/job.yaml", "trainer:1", "trainer:2")
    delivery.push()
    delivery.wait_message("error running server side apply in dryrun mode")
    delivery.wait_applied()
    assert job.get()["spec"]["image"] == "trainer:1"


@pytest.mark.parametrize("tool", SETTINGS, ids=lambda tool: tool.name)
def test_the_page_has_a_row_for_each_setting(tool: type[Engine]) -> None:
    title = {"flux": "Flux", "argocd": "Argo CD"}[tool.name]
    rows = [f"| {title} | {one.words} | {one.changed[0]} | {one.invalid[0]} |" for one in SETTINGS[tool]]
    page = PAGE.read_text().splitlines()
    assert [row for row in page if row.startswith(f"| {title} | ")] == rows
