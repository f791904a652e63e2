"""Reads what nodes report of themselves when an attempt ends or stalls, if the operator has the right to it."""

import asyncio
import logging
from dataclasses import replace

from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.outcome import Outcome
from horovodjob_operator.domain.stall import blamed_pods, current_stall
from horovodjob_operator.errors import ClusterError
from horovodjob_operator.kube.requests.reader import Reader

# Of the nodes of an attempt, so many are read, the blamed ones first.
MAX_NODES = 64
log = logging.getLogger("horovodjob.reconcile")


class NodeConditions:
    """Reads the nodes of an attempt once when it ends, and once when it stalls."""

    def __init__(self, reader: Reader, *, is_allowed: bool) -> None:
        self._reader, self._is_allowed = reader, is_allowed

    async def read(self, state: JobState, context: JobContext, outcome: Outcome | None) -> JobContext | None:
        """The context with what was read now; None if nothing is due."""
        if not self._is_allowed or outcome is None:
            return None
        failure, stall = outcome.failure, current_stall(context.job, context.observed)
        if failure is None and stall is None:
            state.node_conditions, state.node_conditions_of = {}, None
            return None
        due = (context.job.status.attempt, failure is not None)
        if state.node_conditions_of == due:
            return None
        blamed = blamed_pods(stall, context.observed.pods) if stall else ()
        pods = (*([failure.pod] if failure and failure.pod else []), *blamed, *context.observed.pods)
        nodes = list(dict.fromkeys(pod.node for pod in pods if pod.node))[:MAX_NODES]
        found = await asyncio.gather(*map(self._of_node, nodes))
        state.node_conditions, state.node_conditions_of = dict(zip(nodes, found, strict=True)), due
        return replace(context, observed=replace(context.observed, node_conditions=state.node_conditions))

    async def _of_node(self, node: str) -> tuple[str, ...]:
        try:
            return await self._reader.node_conditions(node)
        except ClusterError as error:  # The end of an attempt does not wait for this.
            log.debug("node %s cannot be read: %s", node, error)
            return ()
