"""Components of the operator in the process of a test, which controls their cache and their clock."""

from datetime import datetime, timedelta

from horovodjob.api.job import Metadata
from horovodjob_operator.cluster.caches import Caches, Record
from horovodjob_operator.controller.clock import now
from horovodjob_operator.controller.stored_jobs import new_record
from horovodjob_operator.domain.job_defaults import JobDefaults
from integration.job_driver import Job


def one_hour_later() -> datetime:
    """A clock that is one hour ahead: all observed times are long past."""
    return now() + timedelta(hours=1)


def cached_record(job: Job, caches: Caches) -> Record:
    """The cache record of a job, as the job watch creates it."""
    raw = job.get()
    new = new_record(raw, Metadata.model_validate(raw["metadata"]), JobDefaults())
    known = caches.jobs.setdefault(new.job.key, new)
    known.job, known.version = new.job, new.version
    return known
