"""Argo CD and Flux apply the documented repository, and what users do next."""

from __future__ import annotations

from collections.abc import Callable

from api.client import wait_for
from gitops.conftest import Cluster
from gitops.engine import HEALTHY, Delivery, jobs

Deliver = Callable[..., Delivery]


def test_the_documented_repository_runs_its_jobs_in_an_empty_cluster(cluster: Cluster) -> None:
    wait_for("the jobs", lambda: jobs(cluster.api, "training").keys() == {"digits", "cifar"})
    for job in jobs(cluster.api, "training").values():
        job.advance_to("Succeeded")
    cluster.training.wait_applied()
    cluster.training.wait_health(HEALTHY)
