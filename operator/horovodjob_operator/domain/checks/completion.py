"""Completion: the program has succeeded."""

from horovodjob.api.constants import Phase, Reason
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.checks.outcome import Outcome


def launcher_succeeded(context: JobContext) -> Outcome | None:
    """The launcher of the current attempt has ended with exit code 0."""
    if context.launcher and context.launcher.phase == "Succeeded":
        return Outcome(Phase.SUCCEEDED, Reason.ALL_RANKS_SUCCEEDED, "all ranks ended with exit code 0", exit_code=0)
    return None
