"""Log lines about one job: one line for each effect on the cluster."""

import logging

from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain import names

log = logging.getLogger("horovodjob.reconcile")


def log_effect(job: HorovodJob, message: str) -> None:
    """Logs an effect on the cluster."""
    log.info("%s/%s %s", *job.key, message, extra=names.log_fields(job))


def log_warning(job: HorovodJob, message: str) -> None:
    """Logs a failure that does not end the reconciliation."""
    log.warning("%s/%s %s", *job.key, message, extra=names.log_fields(job))
