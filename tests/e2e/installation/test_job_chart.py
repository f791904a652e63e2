"""Jobs as Helm releases, with the operator and real pods."""

from __future__ import annotations

import json
from typing import Any

from e2e.access import wait_for
from e2e.install import CHARTS
from e2e.namespace import HELD, Namespace
from support.helm import Helm

INSTALL = ("upgrade", "--install", "train", str(CHARTS / "horovodjob"), "--wait", "--timeout=15m")


def values(namespace: Namespace, command: list[str] | str, **spec: Any) -> tuple[str, ...]:
    """Options of Helm for a small job."""
    fields = namespace.job("train", command, **spec)["spec"]
    return (
        "--namespace",
        namespace.name,
        *(f"--set-json={name}={json.dumps(value)}" for name, value in fields.items()),
    )


def phase(namespace: Namespace) -> str:
    """The phase of the job, from the API server."""
    job = namespace.api.find(f"/apis/horovodjob.dev/v1beta1/namespaces/{namespace.name}/horovodjobs/train") or {}
    return str(job["status"]["phase"])


def test_install_waits_until_the_job_runs_or_has_failed_and_uninstall_removes_it(
    namespace: Namespace, helm: Helm
) -> None:
    helm(*INSTALL, *values(namespace, HELD))
    assert phase(namespace) == "Running"
    helm("uninstall", "train", "--namespace", namespace.name)
    wait_for("neither the job nor its pods", lambda: not namespace.find("train") and not namespace.pods("train"))
    policy = {"backoffLimit": 0}
    refusal = helm.refusal(*INSTALL, *values(namespace, ["true"], preparation={"command": "false"}, runPolicy=policy))
    assert f"HorovodJob/{namespace.name}/train" in refusal
    assert phase(namespace) == "Failed"


def test_a_run_of_a_schedule_outlives_the_eviction_of_its_pod_and_is_deleted_with_its_training(
    namespace: Namespace, helm: Helm, images: dict[str, str]
) -> None:
    repository, _, tag = images["hvj"].rpartition(":")
    schedule = {"cron": "0 0 1 1 *", "image": {"repository": repository, "tag": tag}}
    helm(*INSTALL, *values(namespace, HELD), f"--set-json=schedule={json.dumps(schedule)}")
    namespace.kubectl("-n", namespace.name, "create", "job", "--from=cronjob/train", "train-now")
    namespace.wait_phase("train-now", "Running")
    (pod,) = runs(namespace)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace.name}}
    namespace.api.create(f"{namespace.core}/pods/{pod}/eviction", eviction)
    (other,) = wait_for("another pod", lambda: [each for each in runs(namespace) if each != pod])
    found = "job train-now exists already"
    wait_for("its log", lambda: found in namespace.api.text(f"{namespace.core}/pods/{other}/log"))
    namespace.release("train-now-worker-0")
    namespace.kubectl("-n", namespace.name, "wait", "job/train-now", "--for=condition=Complete", "--timeout=300s")
    assert namespace.status("train-now")["phase"] == "Succeeded"
    namespace.kubectl("-n", namespace.name, "delete", "job", "train-now")
    wait_for("no training", lambda: not namespace.find("train-now") and not namespace.pods("train-now"))


def runs(namespace: Namespace) -> list[str]:
    """The pods of the Job `train-now` that have not been deleted."""
    found = namespace.api.items(f"{namespace.core}/pods?labelSelector=batch.kubernetes.io/job-name%3Dtrain-now")
    return [each["metadata"]["name"] for each in found if not each["metadata"].get("deletionTimestamp")]
