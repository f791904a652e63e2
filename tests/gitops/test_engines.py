"""Argo CD and Flux apply the documented repository, and what users do next."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gitops.argocd import ArgoCD
from gitops.conftest import Cluster
from gitops.documented_output import assert_documented_output, run_documented_commands
from gitops.engine import DEFINITION, FAILED, HEALTHY, NEW_DESCRIPTION, PROGRESSING, Delivery, Engine, jobs, runs
from gitops.flux import Flux
from gitops.git_repository import Repository
from support.api_client import wait_for
from support.job_driver import Job, submit

Deliver = Callable[..., Delivery]
JOBS = {"digits", "cifar"}
POLICY = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/frozen-spec.horovodjob.dev"
FROZEN = "can change only while the job is suspended"


def only(engine: type[Engine]) -> pytest.MarkDecorator:
    """Runs a test with one engine."""
    return pytest.mark.parametrize("engine", [engine], ids=lambda one: one.name, indirect=True)


def job_of(delivery: Delivery, name: str, number: int = 1) -> Job:
    """The job with this name before its hash, by the number of its run, as soon as it exists."""
    wait_for(f"run {number} of {name}", lambda: len(runs(delivery.api, delivery.namespace, name)) >= number)
    return runs(delivery.api, delivery.namespace, name)[number - 1]


def patch_outside_of_the_hash(repository: Repository, name: str) -> None:
    """Changes a field of a job that is frozen, and not its name."""
    operation = json.dumps([{"op": "add", "path": "/spec/shmSize", "value": "1Gi"}])
    patches = f"patches: [{{target: {{kind: HorovodJob}}, patch: '{operation}'}}]\nresources"
    repository.edit(f"jobs/{name}/kustomization.yaml", "resources", patches)


def named(delivery: Delivery) -> list[tuple[str, Job]]:
    return [(name, job) for name, job in jobs(delivery.api, delivery.namespace).items()]


def running(delivery: Delivery) -> dict[str, Job]:
    """Both jobs of a team, as soon as they run."""
    wait_for("both jobs", lambda: jobs(delivery.api, delivery.namespace).keys() == JOBS)
    return {name: job.advance_to("Running") for name, job in jobs(delivery.api, delivery.namespace).items()}


def test_the_documented_repository_runs_its_jobs_in_an_empty_cluster(cluster: Cluster) -> None:
    wait_for("the jobs", lambda: jobs(cluster.api, "training").keys() == JOBS)
    for job in jobs(cluster.api, "training").values():
        job.advance_to("Succeeded")
    cluster.training.wait_applied()
    cluster.training.wait_health(HEALTHY)
    assert_documented_output(cluster.engine, "From an empty cluster to jobs that have ended")


def test_a_changed_job_is_another_run_and_the_earlier_one_runs_on(cluster: Cluster, deliver: Deliver) -> None:
    delivery = deliver()
    before = running(delivery)
    delivery.repository.edit("jobs/cifar/job.yaml", "replicas: 4", "replicas: 3")
    delivery.deploy()
    after = job_of(delivery, "cifar", 2)
    assert after.get()["spec"]["worker"]["replicas"] == 3
    after.wait("Queued")
    assert_documented_output(cluster.engine, "A commit changes a job", training=delivery)
    delivery.deploy("nothing changes")
    assert uids_in_cluster(delivery) == {*uids(before), after.uid}
    assert {job.phase for job in before.values()} == {"Running"}


def test_a_job_that_is_removed_from_git_or_has_a_refused_change_runs_on(cluster: Cluster, deliver: Deliver) -> None:
    delivery = deliver()
    before = running(delivery)
    delivery.repository.edit("jobs/kustomization.yaml", ", cifar]", "]")
    delivery.deploy()
    delivery.deploy("nothing changes")
    assert_documented_output(cluster.engine, "A job is removed from Git", training=delivery)
    delivery.repository.git("revert", "--no-edit", "HEAD~1")
    delivery.deploy("reverted")

    # Last, because Argo CD repeats the sync of a refused commit for minutes, also after the next one.
    patch_outside_of_the_hash(delivery.repository, "digits")
    delivery.push()
    delivery.wait_message(FROZEN)
    assert_documented_output(cluster.engine, "A commit changes a frozen field", training=delivery)
    delivery.repository.git("revert", "--no-edit", "HEAD")
    delivery.deploy("reverted")
    assert_documented_output(cluster.engine, "That commit is reverted", training=delivery)
    assert uids_in_cluster(delivery) == {*uids(before)}
    assert {job.phase for job in before.values()} == {"Running"}


def uids(jobs: dict[str, Job]) -> list[str]:
    return [job.uid for job in jobs.values()]


def uids_in_cluster(delivery: Delivery) -> set[str]:
    return {job.uid for job in runs(delivery.api, delivery.namespace)}


def test_the_script_of_the_example_deletes_runs_that_have_ended_and_are_not_in_git(
    cluster: Cluster, deliver: Deliver
) -> None:
    delivery = deliver()
    before = running(delivery)
    for name in before:
        delivery.repository.edit(f"jobs/{name}/job.yaml", "kind: HorovodJob\n", "kind: HorovodJob\n# another run\n")
    delivery.deploy()
    after = {name: job_of(delivery, name, 2).advance_to("Succeeded") for name in before}
    of_user = submit(delivery.api, delivery.namespace).advance_to("Succeeded")
    before["digits"].end("launcher", 0)
    before["digits"].wait("Succeeded")
    kubeconfig = cluster.engine.control_plane.kubeconfig
    run_documented_commands("for the selection by a field", delivery.repository.directory, kubeconfig)
    assert uids_in_cluster(delivery) == {before["cifar"].uid, *uids(after), of_user.uid}
    assert before["cifar"].phase == "Running"
    files = f"/api/v1/namespaces/{delivery.namespace}/configmaps"
    assert not delivery.api.find(f"{files}/{before['digits'].name}")
    assert delivery.api.find(f"{files}/{before['cifar'].name}")


def test_jobs_that_wait_in_a_queue_hold_up_no_other_team(cluster: Cluster, deliver: Deliver) -> None:
    waiting = [deliver() for _ in range(5)]  # one more than Flux has workers
    for delivery in waiting:
        job_of(delivery, "digits").wait_for_pods()
    other = deliver()
    running(other)
    other.repository.edit("jobs/cifar/job.yaml", "replicas: 4", "replicas: 3")
    other.deploy()
    job_of(other, "cifar", 2).wait("Queued")
    assert_documented_output(cluster.engine, "Jobs wait in a queue for hours", training=waiting[0], robotics=other)
    assert {job.phase for delivery in waiting for _, job in named(delivery)} == {"Queued"}


def test_running_jobs_are_undisturbed_when_the_definition_is_upgraded_or_missing_in_git(
    cluster: Cluster, deliver: Deliver, tmp_path: Path
) -> None:
    delivery = deliver()
    before = {name: (job, job.uids()) for name, job in running(delivery).items()}
    cluster.engine.upgrade_operator()
    assert NEW_DESCRIPTION in str(cluster.api.get(DEFINITION)["spec"])
    assert cluster.operator.stop() == 0
    cluster.operator.start()
    assert_documented_output(cluster.engine, "Operator and definition are upgraded", training=delivery)
    cluster.engine.remove_definition(tmp_path / "definition")
    assert "deletionTimestamp" not in cluster.api.get(DEFINITION)["metadata"]
    assert cluster.api.find(POLICY), "the admission policy of the definition"
    assert_documented_output(cluster.engine, "Git no longer has the definition of the resource")
    for job, pods in before.values():
        assert (job.phase, job.uids()) == ("Running", pods)
        job.end("launcher", 0)
        job.wait("Succeeded")
    delivery.wait_applied()


def fail(delivery: Delivery, name: str) -> None:
    """Lets a job fail that does not repeat."""
    job = job_of(delivery, name).advance_to("Running")
    job.end("launcher", 3)
    job.wait("Failed")


def never_repeat(repository: Repository) -> None:
    repository.edit("jobs/cifar/job.yaml", "  pool: gpunp\n", "  runPolicy: {backoffLimit: 0}\n")


def test_a_failed_job_is_degraded_in_argo_cd_and_does_not_concern_flux(cluster: Cluster, deliver: Deliver) -> None:
    delivery = deliver(never_repeat)
    fail(delivery, "cifar")
    delivery.wait_health(FAILED if isinstance(cluster.engine, ArgoCD) else HEALTHY)
    assert_documented_output(cluster.engine, "A job fails", training=delivery)
    delivery.repository.edit("jobs/cifar/job.yaml", "replicas: 4", "replicas: 3")
    delivery.deploy("the next attempt of the user")
    assert job_of(delivery, "cifar", 2).get()["spec"]["worker"]["replicas"] == 3


@only(Flux)
def test_a_kustomization_that_waits_for_results_fails_with_its_job(cluster: Cluster, deliver: Deliver) -> None:
    def move(repository: Repository) -> None:
        never_repeat(repository)
        (repository.directory / "clusters" / "flux").mkdir(parents=True)
        repository.git("add", "--all")
        run_documented_commands(
            "Kustomization of its own", repository.directory, cluster.engine.control_plane.kubeconfig
        )

    delivery = deliver(move)
    delivery.wait_applied()
    assert isinstance(cluster.engine, Flux)
    results = cluster.engine.wait_for_results(delivery)
    job_of(delivery, "cifar").advance_to("Running")
    results.wait_health(PROGRESSING)
    delivery.wait_health(HEALTHY)
    fail(delivery, "cifar")
    results.wait_health(FAILED)


@only(ArgoCD)
def test_a_job_in_a_later_wave_keeps_argo_cd_from_applying_other_commits(deliver: Deliver) -> None:
    def add_wave_and_share(repository: Repository) -> None:
        wave = 'metadata:\n  annotations: {argocd.argoproj.io/sync-wave: "1"}\n'
        repository.edit("jobs/cifar/job.yaml", "metadata:\n", wave)
        shares = "azureFiles: [{name: data2, account: account1, share: data}]"
        repository.edit("jobs/cifar/job.yaml", "  worker: {replicas: 4}\n", f"  worker: {{replicas: 4}}\n  {shares}\n")

    delivery = deliver(add_wave_and_share)
    before = job_of(delivery, "digits").advance_to("Running")
    delivery.wait_message("waiting for healthy state of horovodjob.dev/HorovodJob/digits")
    delivery.repository.edit("jobs/digits/job.yaml", "replicas: 2", "replicas: 3")
    delivery.push()
    before.end("launcher", 0)
    before.wait("Succeeded")
    wait_for("the second wave", lambda: "cifar" in jobs(delivery.api, delivery.namespace))
    delivery.wait_applied()  # The defaults of the API server in the items of its shares are no difference.
