"""The owner of an output directory: the last start of a run in it, which alone may write there."""

import json
import secrets
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from horovodjob_trainer.atomic_file import atomic_write
from horovodjob_trainer.checkpoint.heartbeat import FRESH_SECONDS, heartbeat_age
from horovodjob_trainer.checkpoint.program import Program
from horovodjob_trainer.errors import OutputError
from horovodjob_trainer.launch import Launch, hostname

OWNER_FILE = ".horovodjob-owner.json"
MAX_SUPERSEDED_JOBS = 100


@dataclass(frozen=True, slots=True)
class Owner:
    """The start of a run that owns a directory. Its `token` is unique.

    `superseded` contains the jobs that an unfinished run of a different job has replaced as owner. Such a job does not
    become the owner again, or two jobs in one directory would replace each other with each attempt.
    """

    token: str
    job: str
    description: str
    attempt: int
    superseded: tuple[str, ...]


def next_owner(directory: Path, launch: Launch, program: Program) -> tuple[Owner, bool]:
    """This run as owner of the directory, and whether the present owner is a start of the same job.

    Raises OutputError for a superseded run, and while a different job is active in the directory.
    """
    previous, superseded = _read_owner(directory), list[str]()
    if previous is not None:
        if launch.job and launch.job == previous.job and launch.attempt < previous.attempt:
            raise OutputError(f"attempt {previous.attempt} of this job uses {directory}; this is attempt "
                              f"{launch.attempt}, which started too late")  # fmt: skip
        if launch.job in previous.superseded:
            raise OutputError(f"{previous.description} has replaced this job in {directory}; use "
                              f"{program.another_directory}, or delete {directory / OWNER_FILE} to continue with this "
                              "job")  # fmt: skip
        if launch.job != previous.job:
            _check_inactive(directory, previous, program)
        superseded = [*previous.superseded, *([previous.job] if previous.job not in ("", launch.job) else ())]
    owner = Owner(
        token=secrets.token_hex(8),
        job=launch.job,
        description=_description(launch),
        attempt=launch.attempt,
        superseded=tuple(superseded[-MAX_SUPERSEDED_JOBS:]),
    )
    return owner, previous is not None and bool(launch.job) and launch.job == previous.job


def write_owner(directory: Path, owner: Owner) -> None:
    """Make this run the owner of the directory."""
    with atomic_write(directory / OWNER_FILE, writer=owner.token) as path:
        path.write_text(json.dumps(asdict(owner)) + "\n")


def check_owner(directory: Path, token: str, program: Program) -> None:
    """Raise OutputError if a run that started later owns the directory."""
    owner = _read_owner(directory)
    if owner is None:
        raise OutputError(f"{directory / OWNER_FILE} is missing, because a run that started later has finished or "
                          "because it was deleted; this run ends, as it no longer owns the directory")  # fmt: skip
    if owner.token != token:
        raise OutputError(f"{owner.description} started later and also writes to {directory}, so this run ends; use "
                          f"{program.another_directory} for each job")  # fmt: skip


def _check_inactive(directory: Path, owner: Owner, program: Program) -> None:
    age = heartbeat_age(directory, owner.token)
    if age is not None and age < FRESH_SECONDS:
        raise OutputError(
            f"{owner.description} is active in {directory}: its last heartbeat was {age:.0f} s ago; use "
            f"{program.another_directory}, or, if it was killed, start again in {FRESH_SECONDS - age:.0f} s"
        )


def release_directory(directory: Path) -> None:
    """End the ownership of a run that has finished."""
    (directory / OWNER_FILE).unlink(missing_ok=True)


def _read_owner(directory: Path) -> Owner | None:
    try:
        content = json.loads((directory / OWNER_FILE).read_text())
        values = {field.name: content[field.name] for field in fields(Owner)}
        return Owner(**values | {"superseded": tuple(values["superseded"])})
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


def _description(launch: Launch) -> str:
    return f"attempt {launch.attempt} of the job {launch.job_name}" if launch.job else f"a run on {hostname()}"
