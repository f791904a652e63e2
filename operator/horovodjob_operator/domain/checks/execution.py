"""Execution: mpirun, or the command of the launcher, runs."""

from horovodjob.api.constants import Phase, Reason
from horovodjob_operator.domain.checks import elastic
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.outcome import Outcome
from horovodjob_operator.domain.checks.unresponsive_node import overdue_at
from horovodjob_operator.domain.messages import count_text


def ranks_running(context: JobContext) -> Outcome | None:
    """The start script has made the launcher ready, so mpirun runs."""
    launcher, spec = context.launcher, context.job.spec
    if launcher is None or not launcher.is_active:
        return None
    if not launcher.is_ready and context.job.status.phase is not Phase.RUNNING:
        return None
    if spec.elastic:
        return Outcome(
            Phase.RUNNING,
            Reason.RANKS_RUNNING,
            elastic.workers_message(context),
            requeue_at=context.next_time(context.worker_deadline, overdue_at(context, context.terminating_pod)),
            worker_losses=elastic.worker_losses(context),
        )
    program = f"mpirun runs {count_text(spec.worker.replicas * spec.slots, 'rank')} on"
    if spec.launcher_command:
        program = "the launcher's command runs, with"
    workers = count_text(spec.worker.replicas, "worker")
    return Outcome(Phase.RUNNING, Reason.RANKS_RUNNING, f"{program} {workers}")
