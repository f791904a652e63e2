"""Whether an operator acts on the jobs that the pages show."""

import asyncio
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any
from weakref import WeakKeyDictionary

from horovodjob.api.managed_by import is_managed_by_operator
from horovodjob.client.diagnosis.cluster_facts import Facts, Forbidden, current_time, join_names
from horovodjob.client.diagnosis.installation import RECONCILE_DELAY, lease_error, operator_deployments, unavailability
from horovodjob.client.errors import translated
from horovodjob_dashboard.viewer import Viewer

Object = dict[str, Any]
# The operator's Lease is read this often for each viewer.
SECONDS_BETWEEN_READS = 15.0


class OperatorState:
    """Reads Deployment and Lease of the operator with the rights of each viewer, and what the jobs show."""

    def __init__(self) -> None:
        self._read: WeakKeyDictionary[Viewer, tuple[float, str]] = WeakKeyDictionary()

    async def problem(self, viewer: Viewer, jobs: Iterable[Object]) -> str:
        """Why nothing acts on the jobs now, as a sentence; empty if an operator does, or if nothing shows it."""
        read_at, sentence = self._read.get(viewer, (0.0, ""))
        if not read_at or time.monotonic() - read_at > SECONDS_BETWEEN_READS:
            sentence = await asyncio.to_thread(_installation_problem)
            self._read[viewer] = time.monotonic(), sentence
        return sentence or unanswered_change(jobs, current_time())


def _installation_problem() -> str:
    """The problem that Deployment and Lease show; empty without the right to read them."""
    facts = Facts("", None, None, (), current_time())
    problems = []
    try:
        for deployment in operator_deployments(facts):
            missing = unavailability(deployment)
            problem = missing.message if missing else lease_error(facts, deployment["metadata"]["namespace"])
            if problem is None:
                return ""
            problems.append(problem)
    except Forbidden:
        return ""
    except Exception as error:
        if translated(error) is None:
            raise
        return ""  # The page has other requests to the API server, which show its error.
    return next(iter(problems), "")


def unanswered_change(jobs: Iterable[Object], now: datetime) -> str:
    """The jobs whose creation or change no operator has answered, as a sentence; every viewer of jobs sees this."""
    names = sorted(
        f"{job['metadata']['namespace']}/{job['metadata']['name']}" for job in jobs if _is_unanswered(job, now)
    )
    return f"no operator has answered the last change of {join_names(names)}" if names else ""


def _is_unanswered(job: Object, now: datetime) -> bool:
    metadata = job["metadata"]
    observed = (job.get("status") or {}).get("observedGeneration", -1)
    if observed >= metadata.get("generation", 1) or not is_managed_by_operator(job["spec"]):
        return False
    if metadata.get("deletionTimestamp"):
        return False
    return now - max(_spec_changes(metadata)) > RECONCILE_DELAY


def _spec_changes(metadata: Object) -> list[datetime]:
    """When the job was created, and when somebody other than the operator changed it last."""
    managers = (each for each in metadata.get("managedFields") or [] if not each.get("subresource"))
    times = [metadata["creationTimestamp"], *(each["time"] for each in managers if "time" in each)]
    return [datetime.fromisoformat(each) for each in times]
