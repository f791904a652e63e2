"""Deletion in any order: no namespace is stuck, and the operator can be installed again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.conftest import Watches, reset_gaps
from support.api_client import BASE, Api, wait_for
from support.control_plane.operator_control_plane import (
    OPERATOR_NAMESPACE,
    QUEUE_RIGHTS,
    install,
    make_namespace,
    operator_kubeconfig,
)
from support.job_driver import Job, submit
from support.operator_process import Operator

DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/horovodjobs.horovodjob.dev"


@pytest.fixture
def jobs_to_delete(api: Api, namespace: str) -> tuple[Job, Job]:
    """A running job and one that waits for nodes, in a namespace that the test deletes."""
    name = f"{namespace}-doomed"
    make_namespace(api, name)
    return submit(api, name, "running").advance_to("Running"), submit(api, name, "queued")


def is_deleted(api: Api, job: Job) -> bool:
    """Whether the pods, the Secret and the NetworkPolicy of the job are deleted."""
    policy = f"/apis/networking.k8s.io/v1/namespaces/{job.namespace}/networkpolicies/{job.name}"
    return job.pods() == {} and not any(api.find(path) for path in (job.secret_path, policy))


def delete_namespace(api: Api, name: str) -> None:
    api.delete(f"/api/v1/namespaces/{name}")
    wait_for(f"namespace {name} to be deleted", lambda: api.find(f"/api/v1/namespaces/{name}") is None)


def test_a_namespace_with_jobs_can_be_deleted(operator: Operator, jobs_to_delete: tuple[Job, Job], api: Api) -> None:
    delete_namespace(api, jobs_to_delete[0].namespace)
    wait_for("the metrics of the jobs to be removed", lambda: operator.jobs(jobs_to_delete[0].namespace) == {})


@pytest.fixture
def restore_installation(
    api: Api,
    watch_threads: Watches,
    check_watches_and_operators: None,
    namespace: str,
    operator_access: Path,
    operator_process: Operator,
) -> Iterator[None]:
    """Installs the deleted objects again after the test."""
    yield
    install(api)
    operator_kubeconfig(api, operator_access)
    reset_gaps(api, watch_threads, namespace)


def test_jobs_are_deleted_with_the_crd_and_with_all_manifests_and_the_operator_waits_for_a_new_one(
    restore_installation: None,
    operator: Operator,
    jobs_to_delete: tuple[Job, Job],
    api: Api,
    operator_process: Operator,
) -> None:
    namespace = jobs_to_delete[0].namespace
    jobs_to_delete[1].wait_for_pods()
    api.delete(DEFINITION)
    wait_for("the definition to be deleted", lambda: api.find(DEFINITION) is None)
    for job in jobs_to_delete:
        wait_for(f"what {job.name} owned", lambda: is_deleted(api, job))  # noqa: B023
    delete_namespace(api, namespace)
    install(api)
    make_namespace(api, namespace)
    last = submit(api, namespace).advance_to("Running")
    # Nothing runs the Deployment here, so the test ends the process.
    operator_process.kill()
    for source in (("-k", str(BASE)), ("-f", str(QUEUE_RIGHTS))):
        done = api.kubectl("delete", "--ignore-not-found", *source)
        assert done.returncode == 0, done.stderr
    left = api.kubectl("get", "crd,clusterrole,clusterrolebinding", "-o", "name").stdout.split()
    assert [name for name in left if "horovodjob" in name] == []
    assert api.find(f"/api/v1/namespaces/{OPERATOR_NAMESPACE}") is None
    wait_for("what the job owned", lambda: is_deleted(api, last))
    delete_namespace(api, namespace)
