"""Name conflicts, invalid templates and exhausted quotas."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from horovodjob_operator.controller.children.plan_executor import FIRST_RETRY_SECONDS
from integration.quota import Quota
from support.api_client import Api, wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane, make_namespace
from support.job_driver import Job, has_ended, restricted_pod, submit
from support.operator_process import Operator

Submit = Callable[..., Job]


@pytest.mark.parametrize("name", ["train-worker-1", "train-launcher"])
def test_a_foreign_pod_with_the_same_name_is_kept_and_blocks_the_job_until_it_is_deleted(
    submit_job: Submit, api: Api, namespace: str, name: str
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    foreign = api.create(pods, restricted_pod(name))
    job = submit_job()
    message = job.wait_for_condition("Stalled", reason="NameConflict")
    assert message == f"pod {name} exists and does not belong to this job: delete or rename it, or rename the job"
    assert api.get(f"{pods}/{name}")["metadata"]["resourceVersion"] == foreign["metadata"]["resourceVersion"]
    api.delete(f"{pods}/{name}")
    job.wait_for_condition("Stalled", status="False")
    job.advance_to("Succeeded")


UNFORGIVING = {"runPolicy": {"onWorkerLoss": "Fail", "backoffLimit": 0}}


def assert_no_pod_was_blamed(job: Job) -> None:
    """The operator deleted pods of the job itself, which has no consequences."""
    status = job.status
    assert (status.get("errors", []), status.get("restarts", 0), status.get("preemptions", 0)) == ([], 0, 0)
    assert not set(job.events()) & {"Preempted", "Restarting", "SchedulingTimeout"}


def test_the_pods_that_are_deleted_when_one_is_refused_are_not_lost(
    submit_job: Submit, api: Api, namespace: str
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    api.create(pods, restricted_pod("train-worker-7"))
    job = submit_job(worker={"replicas": 8, "gpus": 0}, **UNFORGIVING)
    job.wait_for_condition("Stalled", reason="NameConflict")
    wait_for("the pods to be deleted", lambda: job.pods() == {})
    assert job.phase == "Queued"
    api.delete(f"{pods}/train-worker-7")
    job.advance_to("Succeeded")
    assert_no_pod_was_blamed(job)


def test_running_pods_that_are_deleted_when_a_replacement_is_refused_are_not_lost(
    submit_job: Submit, api: Api, namespace: str
) -> None:
    job = submit_job(preparation={"command": "true"}, **UNFORGIVING)
    job.advance_to("Starting")
    job.start("worker-0")
    quota = Quota(api, namespace, 0)
    api.delete(f"{job.pods_path}/train-worker-1")  # Before the hosts are published, it is created again.
    wait_for("the message", lambda: is_over_quota(job))
    wait_for("the pods to be deleted", lambda: job.pods() == {})
    assert job.phase == "Queued"
    quota.change(10)
    job.wait_for_pods()
    job.advance_to("Succeeded")
    assert_no_pod_was_blamed(job)


def test_all_pods_are_replaced_when_somebody_deletes_the_keys_of_a_job_that_restarts(
    submit_job: Submit, api: Api
) -> None:
    job = submit_job().advance_to("Running")
    before = set(job.uids().values())
    api.delete(job.secret_path)
    job.end("launcher", 1)
    job.skip_backoff()
    wait_for("new pods", lambda: len(job.uids()) == 3 and not before & set(job.uids().values()))
    job.advance_to("Succeeded")
    status = job.status
    assert (len(status["errors"]), status["restarts"], status.get("preemptions", 0)) == (1, 1, 0)


COMPANIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Service": ("v1", "/api/v1/namespaces/{}/services", {"ports": [{"port": 80}]}),
    "NetworkPolicy": (
        "networking.k8s.io/v1",
        "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
        {"podSelector": {}},
    ),
}


@pytest.mark.parametrize("kind", COMPANIONS)
def test_a_foreign_object_with_the_same_name_is_kept_and_blocks_the_job_until_it_is_deleted(
    submit_job: Submit, api: Api, namespace: str, kind: str
) -> None:
    version, path, spec = COMPANIONS[kind]
    objects = path.format(namespace)
    foreign = {"apiVersion": version, "kind": kind, "metadata": {"name": "train"}, "spec": spec}
    uid = api.create(objects, foreign)["metadata"]["uid"]
    job = submit_job(network={"service": True})
    without = submit_job("without", network={"isolate": False})
    assert f"{kind} train exists" in job.wait_for_condition("Stalled", reason="NameConflict")
    assert job.pods() == {}
    assert api.get(f"{objects}/train")["metadata"]["uid"] == uid
    api.delete(f"{objects}/train")
    job.advance_to("Running")
    (owner,) = api.get(f"{objects}/train")["metadata"]["ownerReferences"]
    assert owner["uid"] == job.uid
    job.advance_to("Restarting", since="Running")
    job.skip_backoff()
    job.advance_to("Succeeded", since="Queued")
    without.wait_for_pods()
    assert api.find(f"{objects}/without") is None


def test_a_recreated_job_waits_until_the_pods_of_its_predecessor_are_deleted(submit_job: Submit, api: Api) -> None:
    old = submit_job().advance_to("Running")
    worker = f"{old.pods_path}/train-worker-0"
    api.patch(worker, {"metadata": {"finalizers": ["example.com/hold"]}})
    old.delete()
    new = submit_job()
    new.wait("Queued")
    wait_for("the names that are free", lambda: {"launcher", "worker-1"} <= set(new.pods()))
    assert "worker-0" not in new.pods()
    assert new.condition("Stalled")["status"] == "False"
    api.patch(worker, {"metadata": {"finalizers": None}})
    new.advance_to("Succeeded")
    assert new.events()["Created"] == 1


def worker(template: Any) -> dict[str, Any]:
    return {"worker": {"replicas": 1, "gpus": 0, "template": template}}


def launcher(template: Any) -> dict[str, Any]:
    return {"launcher": {"template": template}}


MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "no image": ({"image": ""}, "spec.image is empty, and the operator has no default image: set spec.image"),
    "a spec that is a string": (worker({"spec": "x"}), "spec.worker.template.spec must be an object, but is 'x'"),
    "a spec that is a list": (worker({"spec": []}), "spec.worker.template.spec must be an object, but is []"),
    "a spec that is a number": (launcher({"spec": 3}), "spec.launcher.template.spec must be an object, but is 3"),
    "metadata that is null": (worker({"metadata": None, "spec": {"hostname": 3}}), "hostname"),
    "metadata that is a string": (worker({"metadata": "x"}), "spec.worker.template.metadata must be an object"),
    "labels that are a list": (worker({"metadata": {"labels": ["a"]}}), "metadata.labels must be an object"),
    "labels that are null": (
        worker({"metadata": {"labels": None}}),
        "the label app.kubernetes.io/name is the operator's",
    ),
    "a label of the operator": (
        worker({"metadata": {"labels": {"horovodjob.dev/role": "x"}}}),
        "spec.worker.template.metadata.labels: the label horovodjob.dev/role is the operator's, remove it",
    ),
    "a label that is a number": (worker({"metadata": {"labels": {"a": 1}}}), "label"),
    "a name": (worker({"metadata": {"name": "x"}}), "spec.worker.template.metadata.name cannot be set"),
    "annotations that are too large": (worker({"metadata": {"annotations": {"a": "x" * 1_000_000}}}), "annotations"),
    "fields of a pod instead of a template": (worker({"hostNetwork": True}), "has the field hostNetwork"),
    "containers that are an object": (worker({"spec": {"containers": {}}}), "spec.containers must be a list"),
    "containers that are null": (worker({"spec": {"containers": None}}), "spec.worker.template.spec.containers"),
    "a container that is a string": (worker({"spec": {"containers": ["x"]}}), "containers[0] must be an object"),
    "a container without a name": (worker({"spec": {"containers": [{"image": "x"}]}}), "containers[0] has no name"),
    "a container whose name is a number": (
        worker({"spec": {"containers": [{"name": 3}]}}),
        "containers[0] has no name",
    ),
    "a missing container": (worker({"spec": {"containers": [{"name": "wroker"}]}}), "image"),
    "env that is a string": (
        worker({"spec": {"containers": [{"name": "worker", "env": "A=1"}]}}),
        "containers[0].env must be a list",
    ),
    "env entries that are strings": (
        worker({"spec": {"containers": [{"name": "worker", "env": ["A=1"]}]}}),
        "containers[0].env[0] must be an object",
    ),
    "volumes that are an object": (worker({"spec": {"volumes": {"a": {}}}}), "spec.volumes must be a list"),
    "a restart policy": (worker({"spec": {"restartPolicy": "Always"}}), "spec.restartPolicy must not be set"),
    "a command": (
        worker({"spec": {"containers": [{"name": "worker", "command": ["sh"]}]}}),
        "spec.worker.template.spec.containers[name=worker].command must not be set",
    ),
    "arguments": (
        launcher({"spec": {"containers": [{"name": "launcher", "args": None}]}}),
        "spec.launcher.template.spec.containers[name=launcher].args must not be set",
    ),
    "an invalid quantity": (
        worker({"spec": {"containers": [{"name": "worker", "resources": {"limits": {"cpu": "much"}}}]}}),
        "quantities must match",
    ),
    "a request above its limit": (
        {"worker": {"gpus": 0, "resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}}},
        "must be less than or equal to cpu limit",
    ),
    "a node selector that is a list": (worker({"spec": {"nodeSelector": ["a"]}}), "nodeSelector must be an object"),
    "invalid tolerations": (
        worker({"spec": {"tolerations": [{"operator": "Sometimes"}]}}),
        "spec.tolerations[0].operator",
    ),
    "a violation of Pod Security": (
        worker({"spec": {"hostNetwork": True}}),
        'violates PodSecurity "restricted:latest"',
    ),
    "a missing service account": ({"serviceAccountName": "nobody"}, 'serviceaccount "nobody" not found'),
    "an invalid source of variables": ({"envFrom": [{"configMapRef": {"name": "UPPER_CASE"}}]}, "envFrom"),
    "an invalid selector": ({"nodeSelector": {"no good": "x"}}, "nodeSelector"),
}


@pytest.fixture(scope="module")
def malformed_jobs(api: Api, operator_process: Operator) -> Iterator[dict[str, Job]]:
    """All malformed jobs, created together: none may block another."""
    make_namespace(api, "malformed")
    if not operator_process.is_running:
        operator_process.start()
    yield {
        what: submit(api, "malformed", f"bad-{number}", **spec)
        for number, (what, (spec, _)) in enumerate(MALFORMED.items())
    }
    api.delete("/api/v1/namespaces/malformed")


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_job_is_stalled_with_the_cause(malformed_jobs: dict[str, Job], what: str) -> None:
    job = malformed_jobs[what]
    reason = "AdmissionDenied" if what == "a violation of Pod Security" else "InvalidSpec"
    assert MALFORMED[what][1] in job.wait_for_condition("Stalled", reason=reason)
    assert job.phase == "Queued"


def test_a_refused_job_creates_no_pods_until_a_dry_run_succeeds(
    submit_job: Submit, control_plane: OperatorControlPlane, namespace: str
) -> None:
    job = submit_job(**worker({"spec": {"nodeSelector": {"no good": "x"}}}))
    job.wait_for_condition("Stalled", reason="InvalidSpec")
    wait_for("the dry run", lambda: control_plane.calls(namespace)["create pods (dry run)"])
    assert control_plane.calls(namespace)["create pods"] == 2
    assert job.condition("Stalled")["status"] == "True"


def test_malformed_jobs_do_not_delay_other_jobs(malformed_jobs: dict[str, Job], api: Api) -> None:
    assert len(malformed_jobs) == len(MALFORMED)
    good = submit(api, "malformed", "good").advance_to("Succeeded")
    assert good.status["exitCode"] == 0


def test_a_malformed_job_starts_when_it_is_corrected(submit_job: Submit) -> None:
    job = submit_job(**worker({"spec": {"containers": "x"}}))
    job.wait_for_condition("Stalled", reason="InvalidSpec")
    job.suspend()
    job.wait("Suspended")
    job.suspend(False, worker={"template": None})
    job.advance_to("Succeeded")


def is_over_quota(job: Job) -> bool:
    return "exceeded quota: few" in job.condition("Ready").get("message", "")


def test_a_job_over_quota_waits_until_the_quota_is_raised(submit_job: Submit, api: Api, namespace: str) -> None:
    quota = Quota(api, namespace, 1)
    job = submit_job()
    wait_for("the message", lambda: is_over_quota(job))
    assert (job.condition("Queued")["reason"], job.condition("Stalled")["status"]) == ("QuotaExceeded", "False")
    quota.change(10)
    job.advance_to("Succeeded")


def test_a_job_that_waited_for_quota_waits_no_longer_when_it_is_over_quota_again(
    submit_job: Submit, operator: Operator, api: Api, namespace: str
) -> None:
    quota, before = Quota(api, namespace, 0), refusals(operator)
    job = submit_job(worker={"replicas": 1, "gpus": 0})
    wait_for("the first refusal", lambda: refusals(operator) > before)
    first = seconds_until_accepted(job, quota)
    job.advance_to("Running")
    quota.change(0)
    before = refusals(operator)
    job.end("launcher", 1)
    job.skip_backoff()
    wait_for("the next refusal", lambda: refusals(operator) > before)
    # If the quota is raised between the first two pods, the second is accepted at once.
    assert seconds_until_accepted(job, quota) < max(first, FIRST_RETRY_SECONDS) * 1.5


def refusals(operator: Operator) -> float:
    """The number of pods that the API server has refused."""
    return operator.samples("horovodjob_operator_api_requests_total", "code", verb="create", resource="pods").get(
        "403", 0
    )


def seconds_until_accepted(job: Job, quota: Quota) -> float:
    """How long a refused job waits although the quota is raised at once."""
    begin = time.monotonic()
    quota.change(10)
    wait_for("a launcher", lambda: "launcher" in job.pods() and not has_ended(job.pods()["launcher"]))
    return time.monotonic() - begin
