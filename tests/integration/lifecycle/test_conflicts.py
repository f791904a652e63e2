"""Name conflicts and invalid templates."""

from collections.abc import Callable
from typing import Any

from integration.scenarios import suspend
from support.api_client import Api, wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.job_driver import Job, restricted_pod

Submit = Callable[..., Job]


def test_a_foreign_pod_with_the_same_name_is_kept_and_blocks_the_job_until_it_is_deleted(
    submit_job: Submit, api: Api, namespace: str
) -> None:
    pods, name = f"/api/v1/namespaces/{namespace}/pods", "train-worker-3"
    foreign = api.create(pods, restricted_pod(name))
    job = submit_job(worker={"replicas": 4, "gpus": 0}, runPolicy={"onWorkerLoss": "Fail", "backoffLimit": 0})
    message = job.wait_for_condition("Stalled", reason="NameConflict")
    assert message == f"pod {name} exists and does not belong to this job: delete or rename it, or rename the job"
    assert api.get(f"{pods}/{name}")["metadata"]["resourceVersion"] == foreign["metadata"]["resourceVersion"]
    wait_for("the other pods to be deleted", lambda: job.pods() == {})
    assert job.phase == "Queued"
    api.delete(f"{pods}/{name}")
    job.wait_for_condition("Stalled", status="False")
    job.advance_to("Succeeded")
    # The operator deleted pods of the job itself, which has no consequences.
    status = job.status
    assert (status.get("errors", []), status.get("restarts", 0), status.get("preemptions", 0)) == ([], 0, 0)
    assert not set(job.events()) & {"Preempted", "Restarting", "SchedulingTimeout"}


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


def test_a_foreign_object_with_the_same_name_is_kept_and_blocks_the_job_until_it_is_deleted(
    submit_job: Submit, api: Api, namespace: str
) -> None:
    uids = {}
    for kind, (version, path, spec) in COMPANIONS.items():
        foreign = {"apiVersion": version, "kind": kind, "metadata": {"name": kind.lower()}, "spec": spec}
        uids[kind] = api.create(path.format(namespace), foreign)["metadata"]["uid"]
    jobs = {kind: submit_job(kind.lower(), network={"service": True}) for kind in COMPANIONS}
    without = submit_job("without", network={"isolate": False})
    for kind, job in jobs.items():
        path = f"{COMPANIONS[kind][1].format(namespace)}/{kind.lower()}"
        assert f"{kind} {kind.lower()} exists" in job.wait_for_condition("Stalled", reason="NameConflict")
        assert (job.pods(), api.get(path)["metadata"]["uid"]) == ({}, uids[kind])
        api.delete(path)
        job.advance_to("Running")
        (owner,) = api.get(path)["metadata"]["ownerReferences"]
        assert owner["uid"] == job.uid
    without.wait_for_pods()
    assert [path for _, path, _ in COMPANIONS.values() if api.find(f"{path.format(namespace)}/without")] == []


def test_a_recreated_job_waits_until_the_pods_of_its_predecessor_are_deleted(submit_job: Submit, api: Api) -> None:
    old = submit_job(network={"service": True}).advance_to("Running")
    worker = f"{old.pods_path}/train-worker-0"
    api.patch(worker, {"metadata": {"finalizers": ["example.com/hold"]}})
    old.delete()
    new = submit_job(network={"service": True})
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


# What the operator finds in a template before it asks the API server, and what only that refuses.
MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "no image": ({"image": ""}, "spec.image is empty, and the operator has no default image: set spec.image"),
    "a spec that is a string": (worker({"spec": "x"}), "spec.worker.template.spec must be an object, but is 'x'"),
    "labels that are null": (worker({"metadata": {"labels": None}}), "app.kubernetes.io/name is the operator's"),
    "metadata that is null": (worker({"metadata": None, "spec": {"hostname": 3}}), "hostname"),
    "a name": (worker({"metadata": {"name": "x"}}), "spec.worker.template.metadata.name cannot be set"),
    "fields of a pod instead of a template": (worker({"hostNetwork": True}), "has the field hostNetwork"),
    "containers that are an object": (worker({"spec": {"containers": {}}}), "spec.containers must be a list"),
    "a container that is a string": (worker({"spec": {"containers": ["x"]}}), "containers[0] must be an object"),
    "a container without a name": (worker({"spec": {"containers": [{"image": "x"}]}}), "containers[0] has no name"),
    "env entries that are strings": (
        worker({"spec": {"containers": [{"name": "worker", "env": ["A=1"]}]}}),
        "containers[0].env[0] must be an object",
    ),
    "a restart policy": (worker({"spec": {"restartPolicy": "Always"}}), "spec.restartPolicy must not be set"),
    "arguments": (
        launcher({"spec": {"containers": [{"name": "launcher", "args": None}]}}),
        "spec.launcher.template.spec.containers[name=launcher].args must not be set",
    ),
    "a label that is a number": (worker({"metadata": {"labels": {"a": 1}}}), "label"),
    "annotations that are too large": (worker({"metadata": {"annotations": {"a": "x" * 1_000_000}}}), "annotations"),
    "a missing container": (worker({"spec": {"containers": [{"name": "wroker"}]}}), "image"),
    "an invalid quantity": (
        worker({"spec": {"containers": [{"name": "worker", "resources": {"limits": {"cpu": "much"}}}]}}),
        "quantities must match",
    ),
    "a violation of Pod Security": (
        worker({"spec": {"hostNetwork": True}}),
        'violates PodSecurity "restricted:latest"',
    ),
    "a missing service account": ({"serviceAccountName": "nobody"}, 'serviceaccount "nobody" not found'),
    "an invalid selector": ({"nodeSelector": {"no good": "x"}}, "nodeSelector"),
}


def test_a_malformed_job_is_stalled_with_the_cause_until_it_is_corrected_and_delays_no_other(
    submit_job: Submit,
) -> None:
    jobs = {what: submit_job(f"bad-{number}", **spec) for number, (what, (spec, _)) in enumerate(MALFORMED.items())}
    submit_job("good").advance_to("Succeeded")
    for what, job in jobs.items():
        reason = "AdmissionDenied" if what == "a violation of Pod Security" else "InvalidSpec"
        assert MALFORMED[what][1] in job.wait_for_condition("Stalled", reason=reason)
        assert job.phase == "Queued"
    suspend(corrected := jobs["containers that are an object"])
    corrected.suspend(False, worker={"template": None})
    corrected.advance_to("Succeeded")


def test_a_refused_job_creates_no_pods_until_a_dry_run_succeeds(
    submit_job: Submit, control_plane: OperatorControlPlane, namespace: str
) -> None:
    job = submit_job(**worker({"spec": {"nodeSelector": {"no good": "x"}}}))
    job.wait_for_condition("Stalled", reason="InvalidSpec")
    wait_for("the dry run", lambda: control_plane.calls(namespace)["create pods (dry run)"])
    assert control_plane.calls(namespace)["create pods"] == 2
    assert job.condition("Stalled")["status"] == "True"
