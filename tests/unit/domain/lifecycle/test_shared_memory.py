"""The memory-backed /dev/shm of pods with ranks."""

from typing import Any

import pytest

from horovodjob_operator.domain.resources.launcher import launcher_pod
from horovodjob_operator.domain.resources.worker import worker_pod
from unit.domain.fake_cluster import training_job

LIMITED = {"replicas": 2, "gpus": 4, "resources": {"limits": {"memory": "112Gi"}}}


def shared_memory(pod: dict[str, Any]) -> dict[str, Any] | None:
    """The emptyDir that the first container mounts at /dev/shm."""
    mounts = [
        m["name"] for m in pod["spec"]["containers"][0]["volumeMounts"] if m["mountPath"].rstrip("/") == "/dev/shm"
    ]
    assert len(mounts) <= 1, "the API server refuses two mounts at one path"
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    return volumes[mounts[0]]["emptyDir"] if mounts else None


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"worker": LIMITED}, {"medium": "Memory", "sizeLimit": "57344Mi"}),
        ({"worker": LIMITED, "shmSize": "2Gi"}, {"medium": "Memory", "sizeLimit": "2Gi"}),
        ({"worker": {"replicas": 2, "gpus": 1}}, {"medium": "Memory"}),
        ({"worker": LIMITED | {"gpus": 0}}, None),
        ({"worker": LIMITED | {"gpus": 0}, "shmSize": "2Gi"}, {"medium": "Memory", "sizeLimit": "2Gi"}),
    ],
)
def test_workers_with_gpus_have_half_of_their_memory_limit(spec: dict[str, Any], expected: Any) -> None:
    assert shared_memory(worker_pod(training_job(**spec), 0, 1, "")) == expected


def test_a_launcher_has_shared_memory_only_for_ranks() -> None:
    own = {"asWorker": True, "resources": {"limits": {"memory": "8Gi"}}}
    for settings, size in (({}, None), ({"asWorker": True}, "57344Mi"), (own, "4096Mi")):
        found = shared_memory(launcher_pod(training_job(worker=LIMITED, launcher=settings), 1, "", ""))
        assert found == ({"medium": "Memory", "sizeLimit": size} if size else None)


def test_a_volume_of_the_job_at_dev_shm_replaces_the_default() -> None:
    volume = {"name": "mine", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
    mount = {"name": "mine", "mountPath": "/dev/shm/"}
    listed = training_job(worker=LIMITED, volumes=[volume], volumeMounts=[mount])
    mount = {"name": "mine", "mountPath": "/dev/shm"}
    template = {"spec": {"volumes": [volume], "containers": [{"name": "worker", "volumeMounts": [mount]}]}}
    for job in (listed, training_job(worker=LIMITED | {"template": template})):
        assert shared_memory(worker_pod(job, 0, 1, "")) == volume["emptyDir"]
