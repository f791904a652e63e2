"""Results of checks."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """Effect of a check result on a job."""

    OK = "ok"
    WARNING = "warning"
    BLOCKS = "blocks"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One sentence about the cluster, and the command that fixes the problem that it names."""

    check: str
    outcome: Outcome
    message: str
    command: str | None = None

    def record(self) -> dict[str, Any]:
        return {"check": self.check, "result": self.outcome.value, "message": self.message, "command": self.command}
