"""The times of the stages in a file: one JSON object a line, the newest last."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stages.schedule import Outcome, Result
from stages.settings import CACHE, ROOT

FILE = CACHE / "stage-times.jsonl"
Run = dict[str, Any]


def processor_times() -> tuple[float, float]:
    """Busy and total CPU seconds of this machine since its start."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / 100, sum(fields) / 100


def new_run(*, cold: bool, seconds: float, busy: float, results: Iterable[Result]) -> Run:
    """A run as a record of the file; `busy` is the share of the processors that were in use, 0 to 1."""
    results = list(results)
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "cache": "cold" if cold else "warm",
        "passed": all(result.outcome is Outcome.PASSED for result in results),
        "seconds": round(seconds),
        "busy": round(busy, 2),
        "stages": {
            result.name: {
                "seconds": round(result.seconds, 1),
                "processor_seconds": round(result.processor_seconds, 1),
                "outcome": result.outcome,
            }
            for result in results
        },
    }


def append(run: Run, file: Path = FILE) -> None:
    """Append a run to the file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as out:
        out.write(json.dumps(run) + "\n")


def newest_runs(file: Path = FILE) -> list[Run]:
    """The newest run that passed with a cold cache, and the newest that passed with a warm one."""
    runs = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    newest = {run["cache"]: run for run in runs if run["passed"]}
    return [newest[cache] for cache in ("cold", "warm") if cache in newest]


def table(runs: list[Run]) -> str:
    """A column for each run: seconds and processor seconds of each stage."""
    names = dict.fromkeys(name for run in runs for name in run["stages"])
    lines = [f"{'stage':<22}" + "".join(f"{run['cache'] + ' s':>10}{'processor':>11}{'':>9}" for run in runs)]
    for name in names:
        cells = [_cell(run["stages"].get(name)) for run in runs]
        lines.append(f"  {name:<20}" + "".join(cells))
    lines.append(f"  {'all':<20}" + "".join(_total(run) for run in runs))
    return "\n".join(line.rstrip() for line in lines)


def _cell(stage: dict[str, Any] | None) -> str:
    if stage is None:
        return f"{'-':>10}{'':>11}{'':>9}"
    return f"{stage['seconds']:>10.0f}{stage['processor_seconds']:>11.0f}  {stage['outcome']:<7}"


def _total(run: Run) -> str:
    return f"{run['seconds']:>10.0f}{run['busy'] * 100:>9.0f} %  {'passed' if run['passed'] else 'FAILED':<7}"


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()
