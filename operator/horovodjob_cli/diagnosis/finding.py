"""Results of checks."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Result(StrEnum):
    """What a finding means for a job."""

    OK = "ok"
    WARNING = "warning"
    BLOCKS = "blocks"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about the cluster, and the command that mends what it names."""

    check: str
    result: Result
    message: str
    command: str | None = None

    def record(self) -> dict[str, Any]:
        return {"check": self.check, "result": self.result.value, "message": self.message, "command": self.command}
