"""The caches of jobs and pods with events in another order than that of the changes."""

from typing import Any

from horovodjob_operator.cluster.caches import Caches, Record
from horovodjob_operator.domain.pod_facts import OwnedPod, owned_pod
from horovodjob_operator.domain.resources.worker import worker_pod
from unit.domain.fake_cluster import UID, training_job


def stored_worker(uid: str) -> tuple[dict[str, Any], OwnedPod]:
    """A worker pod as the API server shows it, and its facts."""
    made = worker_pod(training_job(), 0, 1, "")
    raw = {**made, "metadata": {**made["metadata"], "uid": uid, "resourceVersion": "7"}}
    owned = owned_pod(raw)
    assert owned is not None
    return raw, owned


def test_a_pod_deleted_before_its_creation_is_answered_stays_deleted() -> None:
    caches = Caches()
    raw, owned = stored_worker("first")
    caches.pod_seen(raw)
    caches.pod_gone(raw)
    assert not caches.keep(owned)
    assert caches.pods.get(training_job().key, {}) == {}
    assert caches.keep(stored_worker("second")[1]), "another pod of that name"


def test_a_pod_that_was_created_while_the_pods_were_listed_stays_known() -> None:
    caches = Caches()
    caches.keep(stored_worker("created")[1])
    assert caches.pods_listed(set(), 6) == []
    assert len(caches.pods[training_job().key]) == 1
    assert caches.pods_listed(set(), 7) == [training_job().key], "it was deleted before the list was read"
    assert caches.pods == {}


def test_a_list_of_jobs_removes_the_missing_jobs() -> None:
    kept, gone = training_job("kept"), training_job("gone")
    gone = gone.model_copy(update={"metadata": gone.metadata.model_copy(update={"uid": "gone"})})
    caches = Caches(jobs={job.key: Record(job, 1) for job in (kept, gone)})
    caches.live_jobs_listed({UID}, 1)
    caches.finished_jobs_listed(set(), 1)
    assert [job.metadata.name for job in caches.all_jobs()] == ["kept"]
