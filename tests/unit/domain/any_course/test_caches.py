"""The caches of jobs and pods with events in another order than that of the changes."""

from typing import Any

from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.controller.jobs.job_store import JobStore
from horovodjob_operator.domain.pods.pod_facts import OwnedPod, owned_pod
from horovodjob_operator.domain.resources.worker import worker_pod
from horovodjob_operator.kube.pod_cache import PodCache
from unit.domain.fake_cluster import UID, training_job


def stored_worker(uid: str) -> tuple[dict[str, Any], OwnedPod]:
    """A worker pod as the API server shows it, and its facts."""
    made = worker_pod(training_job(), 0, 1, "")
    raw = {**made, "metadata": {**made["metadata"], "uid": uid, "resourceVersion": "7"}}
    owned = owned_pod(raw)
    assert owned is not None
    return raw, owned


def test_a_pod_deleted_before_its_creation_is_answered_stays_deleted() -> None:
    pods = PodCache()
    raw, owned = stored_worker("first")
    pods.update(raw)
    pods.delete(raw)
    assert not pods.store(owned)
    assert pods.of_job(training_job().key) == {}
    assert pods.store(stored_worker("second")[1]), "another pod of that name"


def test_a_pod_that_was_created_while_the_pods_were_listed_stays_known() -> None:
    pods, created = PodCache(), stored_worker("created")[1]
    pods.store(created)
    assert pods.delete_unlisted(set(), 6) == []
    assert len(pods.of_job(training_job().key)) == 1
    assert pods.delete_unlisted(set(), 7) == [created], "it was deleted before the list was read"
    assert list(pods) == []


def test_a_list_of_jobs_removes_the_missing_jobs() -> None:
    kept, gone = training_job("kept"), training_job("gone")
    gone = gone.model_copy(update={"metadata": gone.metadata.model_copy(update={"uid": "gone"})})
    store = JobStore([JobState(job, 1) for job in (kept, gone)])
    store.unfinished_jobs_listed({UID}, 1)
    store.finished_jobs_listed(set(), 1)
    assert [job.metadata.name for job in store.jobs()] == ["kept"]
