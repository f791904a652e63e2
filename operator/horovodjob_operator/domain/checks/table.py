"""The ordered table of checks: the first check with an outcome determines the state of the job.

      suspend                       suspend = false
Queued <------ any, no pods ------> Suspended
  | all pods have a node            (back to Queued if they have none, or cannot start, in time,
  |                                  or if the queue of the job takes its quota)
  v            mpirun runs           launcher ended with 0
Starting ----------------> Running -----------------------> Succeeded
  |  ^                        |
  |  | all pods have a node   | a pod failed or was lost
  +--+------ Restarting <-----+    deadline, terminate
                 | no restarts left      any ---> Terminating ---> Failed
                 +---------------------------------------------------^
"""

from collections.abc import Callable
from dataclasses import replace

from horovodjob.api.constants import Phase
from horovodjob_operator.domain.checks import (
    backoff,
    failure,
    scheduling,
    startup_and_execution,
    suspension_and_termination,
)
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.outcome import Outcome
from horovodjob_operator.kueue import queue_checks

CHECKS: tuple[Callable[[JobContext], Outcome | None], ...] = (
    # A program that has succeeded has done its work, whatever the user requests by then.
    startup_and_execution.launcher_succeeded,
    # Terminating only leads to Failed: a later request must not replace the reason of the termination.
    suspension_and_termination.terminating,
    # A request of the user that comes after the deadline must not hide that the deadline passed.
    suspension_and_termination.deadline_exceeded,
    # A suspended job can be terminated, so this precedes suspension.
    suspension_and_termination.termination_requested,
    # The operator deletes the pods of a suspended job, which must not count as a failure.
    suspension_and_termination.suspended,
    suspension_and_termination.resumed_with_quota,
    # Pods of another spec are replaced, so their failures have no consequences.
    suspension_and_termination.spec_changed,
    suspension_and_termination.pods_outdated,
    # The queue has taken the quota, and the operator deletes the pods: their ends have no consequences.
    queue_checks.evicted,
    failure.attempt_failed,
    # Only a failure that has been attributed to a pod ends the wait for evidence.
    failure.evidence_pending,
    # The Workload of a job is finished before its last status is written, so its end precedes this.
    queue_checks.workload_finished,
    queue_checks.waiting_outside_queue,
    # Without quota no pod is created, so neither refusals of pods nor delays of the next attempt apply.
    queue_checks.waiting_in_queue,
    # A job with a refused object creates no pods, so no delay of the next attempt applies.
    scheduling.creation_refused,
    # While a delay runs the attempt has no launcher, and the checks below would report that nodes are missing.
    backoff.restart_backoff,
    backoff.reschedule_backoff,
    # Once mpirun runs, no pod of the attempt has to start any more.
    startup_and_execution.ranks_running,
    # The timeouts delete the pods, so they precede the checks that only report why pods do not start.
    scheduling.scheduling_timeout,
    startup_and_execution.startup_timeout,
    startup_and_execution.ranks_overdue,
    startup_and_execution.pod_cannot_start,
    # Other pods of the attempt may be on their way, so the reasons of those that exist come first.
    scheduling.creation_failing,
    # Nothing is wrong: the later state precedes the earlier one.
    startup_and_execution.pods_scheduled,
    scheduling.waiting_for_nodes,
)


def compute_outcome(context: JobContext) -> Outcome:
    """The outcome of the first check that has one; the last check always has one."""
    outcome = next(outcome for check in CHECKS if (outcome := check(context)))
    # While ranks run, a refusal delays each worker that joins, and nothing else.
    is_delayed = outcome.phase is not Phase.RUNNING and context.next_time(context.observed.retry_at) is not None
    # A job can have pods and no Workload, such as when Kueue was removed: they end without being replaced.
    return replace(outcome, creates_pods=False) if is_delayed or not context.has_quota else outcome
