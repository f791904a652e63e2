"""The jobs that wait for room in a quota, for a process that has just started."""

from typing import cast

import pytest

from horovodjob.api.constants import Reason
from horovodjob_operator.controller.children.quota_line import QuotaLine
from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.controller.jobs.job_store import JobStore
from horovodjob_operator.domain.pods.observed import Refusal
from horovodjob_operator.kube.pod_cache import PodCache
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.requests.reader import Reader
from unit.domain.fake_cluster import FakeCluster, training_job


@pytest.mark.parametrize("generation", [1, 2])
def test_a_new_job_waits_for_jobs_with_quota_exceeded_in_the_status_of_their_spec(generation: int) -> None:
    refused, new = FakeCluster(training_job()), FakeCluster(training_job())
    refused.refusal = Refusal(Reason.QUOTA_EXCEEDED, "exceeded quota: few", None, waits_in_line=True)
    refused.reconcile()
    metadata = refused.job.metadata.model_copy(update={"name": "first", "uid": "first", "generation": generation})
    first = JobState(refused.job.model_copy(update={"metadata": metadata}), 1)
    second = JobState(new.job, 1)
    line = QuotaLine(JobStore([first, second]), PodCache(), Reader(cast(ApiClient, None)), lambda: new.now)
    waits = generation == 1
    assert line.must_wait(second, new.context) is waits
    assert (first.refusal is not None and first.refusal.message == "exceeded quota: few") is waits
