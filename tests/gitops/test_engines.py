"""Argo CD and Flux apply the documented repository, and what users do next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import yaml

from api.client import wait_for
from gitops.conftest import Cluster
from gitops.engine import HEALTHY, PROGRESSING, Delivery, jobs
from gitops.git_repository import Repository
from integration.job_driver import Job

Deliver = Callable[..., Delivery]
JOBS = {"digits", "cifar"}
FROZEN = "can change only while the job is suspended"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/horovodjobs.horovodjob.dev"


def job_of(delivery: Delivery, name: str) -> Job:
    """The only job whose name begins with `name`, as soon as it exists and no other is being deleted."""
    found = wait_for(f"the job {name}", lambda: [one for key, one in named(delivery) if key == name])
    (job,) = found
    return job


def named(delivery: Delivery) -> list[tuple[str, Job]]:
    return [(name, job) for name, job in jobs(delivery.api, delivery.name).items()]


def running(delivery: Delivery) -> dict[str, Job]:
    """Both jobs of a team, as soon as they run."""
    wait_for("both jobs", lambda: jobs(delivery.api, delivery.name).keys() == JOBS)
    return {name: job.advance_to("Running") for name, job in jobs(delivery.api, delivery.name).items()}


def test_the_documented_repository_runs_its_jobs_in_an_empty_cluster(cluster: Cluster) -> None:
    wait_for("the jobs", lambda: jobs(cluster.api, "training").keys() == JOBS)
    for job in jobs(cluster.api, "training").values():
        job.advance_to("Succeeded")
    cluster.training.wait_applied()
    cluster.training.wait_health(HEALTHY)


def test_a_changed_manifest_replaces_the_job_that_allows_it_and_no_other(deliver: Deliver) -> None:
    delivery = deliver()
    before = running(delivery)
    delivery.repository.edit("jobs/cifar/job.yaml", "replicas: 4", "replicas: 3")
    delivery.deploy()
    after = job_of(delivery, "cifar")
    assert after.uid != before["cifar"].uid
    assert after.get()["spec"]["worker"]["replicas"] == 3
    assert job_of(delivery, "digits").uid == before["digits"].uid
    delivery.deploy("nothing changes")
    assert job_of(delivery, "cifar").uid == after.uid


def test_changed_parameters_create_another_job_and_prune_the_old_one(deliver: Deliver) -> None:
    delivery = deliver()
    before = running(delivery)
    delivery.repository.edit("jobs/digits/run.env", "workers=2", "workers=3")
    delivery.deploy()
    wait_for("the end of the old job", lambda: not delivery.api.find(before["digits"].path))
    after = job_of(delivery, "digits")
    assert after.get()["spec"]["worker"]["replicas"] == 3
    wait_for("the end of its pods", lambda: not before["digits"].pods())
    assert job_of(delivery, "cifar").uid == before["cifar"].uid


def test_a_refused_change_is_reported_and_a_revert_mends_it(deliver: Deliver) -> None:
    delivery = deliver()
    before = running(delivery)
    delivery.repository.edit("jobs/digits/job.yaml", "cpu: 500m", "cpu: 900m")
    delivery.push()
    delivery.wait_message(FROZEN)
    delivery.repository.git("revert", "--no-edit", "HEAD")
    delivery.deploy("reverted")
    assert {name: job.uid for name, job in named(delivery)} == {name: job.uid for name, job in before.items()}


def test_a_removed_job_is_deleted_with_its_pods(deliver: Deliver) -> None:
    delivery = deliver()
    before = running(delivery)
    delivery.repository.edit("jobs/kustomization.yaml", ", cifar]", "]")
    delivery.deploy()
    wait_for("the end of the job", lambda: not delivery.api.find(before["cifar"].path))
    wait_for("the end of its pods", lambda: not before["cifar"].pods())
    assert before["digits"].phase == "Running"


def test_jobs_that_wait_in_a_queue_hold_up_no_other_team(deliver: Deliver) -> None:
    waiting = [deliver() for _ in range(5)]  # one more than Flux has workers
    for delivery in waiting:
        job_of(delivery, "digits").wait_for_pods()
    other = deliver()
    running(other)
    other.repository.edit("jobs/cifar/job.yaml", "replicas: 4", "replicas: 3")
    other.deploy()
    assert {job.phase for delivery in waiting for _, job in named(delivery)} == {"Queued"}


def test_jobs_survive_the_removal_of_their_definition_from_git(cluster: Cluster, deliver: Deliver) -> None:
    def add_definition(repository: Repository) -> None:
        definition = Path(__file__).resolve().parents[2] / "manifests" / "base" / "crd.yaml"
        (repository.directory / "jobs" / "crd.yaml").write_text(definition.read_text())
        repository.edit("jobs/kustomization.yaml", "namespace.yaml, ", "namespace.yaml, crd.yaml, ")

    delivery = deliver(add_definition)
    before = running(delivery)
    delivery.wait_applied()
    delivery.repository.edit("jobs/kustomization.yaml", "crd.yaml, ", "")
    delivery.push()
    delivery.wait_attempt()
    assert "deletionTimestamp" not in cluster.api.get(DEFINITION)["metadata"]
    assert before["digits"].phase == "Running"
