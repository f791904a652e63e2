"""The file with the identity and the settings of an unfinished run."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from horovodjob_trainer.atomic_file import atomic_write

RUN_FILE = ".horovodjob-run.json"
RUN = re.compile(r"[A-Za-z0-9]{1,64}")  # also the name of a folder
SHOWN_CHANGES = 3


@dataclass(frozen=True, slots=True)
class RunFile:
    """The identity of a run and the settings that define what it trains, as JSON values."""

    run: str
    settings: Mapping[str, Any]

    def changes(self, settings: Mapping[str, Any]) -> dict[str, str]:
        """A description of each setting that is different now."""
        current = json.loads(json.dumps(dict(settings)))
        names = sorted(self.settings.keys() | current.keys())
        return {
            name: f"{name} was {self.settings.get(name)} and is {current.get(name)}"
            for name in names
            if self.settings.get(name) != current.get(name)
        }


def read_run_file(folder: Path) -> RunFile | None:
    """The unfinished run of the folder, None if there is none. Raises ValueError for a damaged file."""
    try:
        content = json.loads((folder / RUN_FILE).read_text())
    except FileNotFoundError:
        return None
    if not isinstance(content, dict) or not isinstance(content.get("run"), str):
        raise ValueError("it contains no run")
    if not RUN.fullmatch(content["run"]):
        raise ValueError("its run has a name that is no name of a folder")
    if not isinstance(content.get("settings"), dict):
        raise ValueError("it contains no settings")
    return RunFile(content["run"], content["settings"])


def write_run_file(folder: Path, run: str, settings: Mapping[str, Any], *, writer: str) -> None:
    """Replace the file. `writer` is unique among the processes that can write it at the same time."""
    with atomic_write(folder / RUN_FILE, writer=writer) as path:
        path.write_text(json.dumps({"run": run, "settings": dict(settings)}) + "\n")


def summary(changes: Mapping[str, str]) -> str:
    """The first changes as a clause of a sentence."""
    rest = len(changes) - SHOWN_CHANGES
    return "; ".join([*list(changes.values())[:SHOWN_CHANGES], *([f"and {rest} more"] if rest > 0 else [])])
