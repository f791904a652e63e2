"""One reconciliation of one job: observe, decide, write the status, act."""

from collections.abc import Callable
from datetime import datetime

from horovodjob_operator.controller.auxiliary_objects import AuxiliaryObjects
from horovodjob_operator.controller.event_poster import EventPoster
from horovodjob_operator.controller.job_state import JobState
from horovodjob_operator.controller.kubelet_events import KubeletEvents
from horovodjob_operator.controller.plan_executor import PlanExecutor
from horovodjob_operator.controller.status_writer import StatusWriter
from horovodjob_operator.domain.plan import plan_for
from horovodjob_operator.kube.cache import PodCache
from horovodjob_operator.kube.preflight import Preflight
from horovodjob_operator.kube.reader import Reader
from horovodjob_operator.kube.writer import Writer


class Reconciler:
    """Reconciles a job. After an interruption at any write, the next reconciliation completes the work."""

    def __init__(
        self,
        pods: PodCache,
        writer: Writer,
        reader: Reader,
        clock: Callable[[], datetime],
        progress_url: str,
        preflight: Preflight | None = None,
    ) -> None:
        self._event_poster = EventPoster(writer, clock)
        self._status_writer = StatusWriter(pods, writer, self._event_poster, clock)
        self._kubelet_events = KubeletEvents(reader)
        self._auxiliary_objects = AuxiliaryObjects(writer, reader)
        self._executor = PlanExecutor(pods, writer, reader, clock, progress_url, preflight)

    async def reconcile(self, state: JobState) -> datetime | None:
        """Reconciles a job once, and returns when to reconcile it again without an event. Raises ClusterError."""
        if state.job.metadata.deletion_timestamp:
            return None  # Kubernetes deletes the objects of the job, and none must be created again.
        self._event_poster.recover_events(state)
        try:
            # Before the plan: its deletions remove the evidence for the status.
            context, outcome, status_due = await self._status_writer.write(state)
            state.forget_deleted_pods()
            plan = plan_for(context, outcome)
            times = [
                plan.requeue_at,
                status_due,
                await self._executor.execute(state, context, plan),
                await self._kubelet_events.read(state, context),
                await self._auxiliary_objects.recreate_deleted(state, context),
            ]
        finally:
            # After the pods, which must not wait for events.
            events_due = await self._event_poster.post(state)
        return min((at for at in (*times, events_due) if at), default=None)
