"""What `hvj run`, `Client.run` and `Client.sweep` are asked for."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict

from horovodjob.azurefiles.credentials import Options
from horovodjob.client.errors import UsageError
from horovodjob.client.messages import message

CLAIM = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A program of a directory with its arguments, and the values that differ from those of the job.

    The program is a script, a module of Python, or a command whose words are `args`.
    """

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
    module: str | None = None
    is_command: bool = False
    generated: Mapping[str, Path] = field(default_factory=dict)  # files beside those of the directory, by path


class RunOptions(TypedDict, total=False):
    """The options of `Client.run` and `Client.sweep`, which are those of `hvj run`."""

    args: Sequence[object] | Mapping[str, object]
    """More arguments of the program; for a function, its arguments by position or by name."""
    module: str
    """A module of Python to run instead of a script, as `python -m` does."""
    command: Sequence[str]
    """Any command to run instead of a script, in each rank."""
    workdir: str | PathLike[str]
    """Directory to send; by default the current one, and none for a function."""
    name: str
    nodes: int
    gpus: int
    image: str
    requirements: str
    env: Mapping[str, str]
    share: str
    claim: str
    account: Options
    mounts: Mapping[str, str]
    """Paths in the containers, by PersistentVolumeClaim."""
    queue: str
    experiment: str
    pool: str
    spot: bool
    elastic: tuple[int, int]
    retries: int
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    quiet: bool
    """Do not name what is left out on standard error."""


# Options that the request has as the caller gives them.
SAME = (
    *("name", "nodes", "gpus", "image", "requirements", "share", "claim", "account", "mounts", "queue", "experiment"),
    *("pool", "spot", "elastic", "retries", "labels", "annotations", "module"),
)


def request_of(
    program: str | Callable[..., Any] | None,
    arguments: Sequence[object],
    options: RunOptions,
    directory: Path,
    *,
    source: str | None = None,
) -> RunRequest:
    """The request of a program. The script of a function is written into `directory`. Raises UsageError."""
    for name in options.keys() - RunOptions.__annotations__.keys():
        similar = get_close_matches(name, RunOptions.__annotations__, n=1)
        raise UsageError(f"{name!r} is no option of a run" + "".join(f"; {each!r} is one" for each in similar))
    args, env, command = options.get("args") or (), options.get("env") or {}, options.get("command") or ()
    if sum(each is not None for each in (program or None, options.get("module"), command or None)) > 1:
        raise UsageError("script, module and command name a program each; use one of them")
    values: dict[str, Any] = {name: value for name, value in options.items() if name in SAME and value is not None}
    values |= {"source": source, "env": tuple(f"{key}={value}" for key, value in env.items())}
    if workdir := options.get("workdir"):
        values["workdir"] = Path(workdir)
    if callable(program):
        from horovodjob.client.runs import function_script

        script = function_script.write(program, arguments, args, directory)
        values |= {"script": script.name, "generated": {script.name: script}}
        if "workdir" not in values and not options.get("quiet"):
            for module in function_script.modules_of(script, Path.cwd()):
                message(
                    f"{script.stem} imports {module}, which is a file of this directory and is not sent with a "
                    "function: add workdir='.', unless the image has it"
                )
        values.setdefault("workdir", directory)
        return RunRequest(**values)
    if isinstance(args, Mapping):
        raise UsageError("args has names, which only a function takes; use a list for a script")
    words = (*command, *arguments, *args)
    return RunRequest(script=program, args=tuple(map(str, words)), is_command=bool(command), **values)


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
