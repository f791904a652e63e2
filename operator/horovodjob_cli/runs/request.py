"""What `hvj run` is asked for."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from horovodjob.azurefiles.credentials import Options
from horovodjob_cli.errors import UsageError

CLAIM = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A script of a directory with its arguments, and the values that differ from those of the job."""

    script: str | None = None
    args: tuple[str, ...] = ()
    workdir: Path | None = None
    name: str | None = None
    nodes: int | None = None
    gpus: int | None = None
    image: str | None = None
    requirements: str | None = None
    env: tuple[str, ...] = ()  # NAME=VALUE
    share: str | None = None
    claim: str | None = None
    account: Options = field(default_factory=Options)
    mounts: Mapping[str, str] = field(default_factory=dict)  # claim -> path in the containers
    queue: str | None = None
    experiment: str | None = None
    pool: str | None = None
    spot: bool = False
    elastic: tuple[int, int] | None = None
    retries: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    source: str | None = None  # the job to run again


def elastic_range(option: str | None) -> tuple[int, int] | None:
    """The numbers of nodes of --elastic MIN:MAX. Raises UsageError."""
    if option is None:
        return None
    match = re.fullmatch(r"([1-9]\d{0,4}):([1-9]\d{0,4})", option)
    if not match or int(match[1]) > int(match[2]):
        raise UsageError(f"--elastic {option!r} must be MIN:MAX, such as 2:8")
    return int(match[1]), int(match[2])


def claim_paths(options: list[str] | None) -> dict[str, str]:
    """Paths by claim, from --mount CLAIM=/PATH. Raises UsageError."""
    paths = {}
    for option in options or ():
        claim, equals, path = option.partition("=")
        if not equals or not CLAIM.fullmatch(claim) or path[:1] != "/":
            raise UsageError(f"--mount {option!r} must be CLAIM=/PATH, a PersistentVolumeClaim and an absolute path")
        paths[claim] = path
    return paths


def claim_name(option: str | None) -> str | None:
    """The claim of --claim. Raises UsageError."""
    if option is not None and not CLAIM.fullmatch(option):
        raise UsageError(f"--claim {option!r} must be the name of a PersistentVolumeClaim")
    return option
