"""The options of a script's run."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from horovodjob_trainer.reporting.best_values import check_mode
from horovodjob_trainer.run.termination import GRACE_SECONDS

RESUME = ("auto", "continue", "never")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a script keeps its run in a directory. The checkpoints are due after steps and after seconds."""

    directory: Path
    every_steps: int | None = None
    every_seconds: float = 600.0
    keep: int = 3
    resume: str = "auto"
    settings: Mapping[str, Any] = field(default_factory=dict)
    log_seconds: float = 5.0
    failure_seconds: float = 1800.0
    grace_seconds: float = GRACE_SECONDS
    monitor: str | None = None
    mode: str | None = None

    def __post_init__(self) -> None:
        check_mode(self.monitor, self.mode)
        for name, minimum in (("every_steps", 1), ("every_seconds", 0.001), ("keep", 1), ("failure_seconds", 0.001)):
            value = getattr(self, name)
            if value is not None and not value >= minimum:
                raise ValueError(f"{name} of a run must be at least {minimum}, not {value}")
        if self.resume not in RESUME:
            raise ValueError(f"resume of a run must be {', '.join(RESUME[:-1])} or {RESUME[-1]}, not {self.resume}")
        try:
            json.dumps(dict(self.settings))
        except TypeError as error:
            raise ValueError(f"settings of a run must be JSON values: {error}") from error
