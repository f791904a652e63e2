"""The log of the operator, as JSON; about a job, one line for each effect on the cluster."""

import logging
import sys
import time

from pythonjsonlogger.json import JsonFormatter

from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain import names

log = logging.getLogger("horovodjob.reconcile")


class UtcJsonFormatter(JsonFormatter):
    """One JSON object per line, with times in UTC as in RFC 3339."""

    converter = time.gmtime  # type: ignore[assignment]
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


def log_json(level: str) -> None:
    """Configures the log; `level` applies to the operator, and WARNING to the libraries."""
    handler = logging.StreamHandler(sys.stderr)
    fields = {"asctime": "time", "levelname": "level", "name": "logger"}
    handler.setFormatter(UtcJsonFormatter("%(asctime)s %(levelname)s %(name)s %(message)s", rename_fields=fields))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    # Kopf logs an error at each try of a request. The metrics count failures, and our log reports missing rights.
    for name in ("kopf._cogs.clients", "kopf._core.reactor.observation"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("horovodjob").setLevel(level)


def log_effect(job: HorovodJob, message: str) -> None:
    """Logs an effect on the cluster."""
    log.info("%s/%s %s", *job.key, message, extra=names.log_fields(job))


def log_warning(job: HorovodJob, message: str) -> None:
    """Logs a failure that does not end the reconciliation."""
    log.warning("%s/%s %s", *job.key, message, extra=names.log_fields(job))
