"""The operator's own parts in the process of a test, which decides what they know and what time it is."""

from datetime import datetime, timedelta

from handling.player import Job
from horovodjob_operator.cluster.caches import Caches, Record
from horovodjob_operator.domain.job_defaults import JobDefaults
from horovodjob_operator.handlers import Events, Passes, now
from horovodjob_operator.reconcile import Reconciler


def in_an_hour() -> datetime:
    """A clock that is fast: what has just happened is long ago, and what is not done by now is late."""
    return now() + timedelta(hours=1)


def take_in(job: Job, caches: Caches, reconciler: Reconciler) -> Record:
    """The record of a job, as the watch of the jobs makes it."""
    Events(caches, Passes(caches, reconciler), JobDefaults()).job_seen(job.get())
    return caches.jobs[job.namespace, job.name]
