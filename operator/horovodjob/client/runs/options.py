"""The options of runs and sweeps, declared once, for the command line and `horovodjob.Client`."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, TypedDict, cast, get_args, get_type_hints

from horovodjob.azurefiles.credentials import Options
from horovodjob.client.errors import UsageError

CLAIM = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Option:
    """How the command line has an option, and where it has an effect."""

    help: str
    metavar: str | None = "NAME"
    names: tuple[str, ...] = ()
    """By default, the name of the field with two dashes."""
    minimum: int | None = None
    given: Any = None
    """The type of what is written on the command line; by default, that of the field."""
    parsed: Callable[[Any], Any] = lambda value: value
    """From what is written to the value of the field. Raises UsageError."""
    is_local: bool = False
    """It has an effect with --local, too."""
    is_for_new_code: bool = False
    """It has no effect with --from, which runs the code of a job again."""


def elastic_range(text: str) -> tuple[int, int]:
    """The numbers of nodes of --elastic MIN:MAX. Raises UsageError."""
    match = re.fullmatch(r"([1-9]\d{0,4}):([1-9]\d{0,4})", text)
    if not match or int(match[1]) > int(match[2]):
        raise UsageError(f"`elastic=` {text!r} must be MIN:MAX, such as 2:8")
    return int(match[1]), int(match[2])


def claim_paths(texts: list[str]) -> dict[str, str]:
    """Paths by claim, from --mount CLAIM=/PATH. Raises UsageError."""
    paths = {}
    for text in texts:
        claim, equals, path = text.partition("=")
        if not equals or not CLAIM.fullmatch(claim) or path[:1] != "/":
            raise UsageError(f"`mounts=` {text!r} must be CLAIM=/PATH, a PersistentVolumeClaim and an absolute path")
        paths[claim] = path
    return paths


def claim_name(text: str) -> str:
    """The claim of --claim. Raises UsageError."""
    if not CLAIM.fullmatch(text):
        raise UsageError(f"`claim=` {text!r} must be the name of a PersistentVolumeClaim")
    return text


class RunOptions(TypedDict, total=False):
    """The options of `Client.run` and `Client.sweep`; those with an Option are options of `hvj run`, too."""

    args: Sequence[object] | Mapping[str, object]
    """More arguments of the program; for a function, its arguments by position or by name."""
    command: Sequence[str]
    """Any command to run instead of a script, in each rank."""
    module: Annotated[
        str,
        Option("Run a module, as python -m does.", "MODULE", ("--module", "-m"), is_local=True, is_for_new_code=True),
    ]
    workdir: Annotated[
        str | PathLike[str],
        Option(
            "Directory that the job gets, without what .gitignore and .hvjignore name. Default: the current one.",
            "DIRECTORY",
            given=Path,
            is_local=True,
            is_for_new_code=True,
        ),
    ]
    """By default the current directory, and none for a function."""
    name: Annotated[str, Option("Name of the job. Default: the script's and a suffix.", names=("--name", "-n"))]
    nodes: Annotated[int, Option("Number of nodes. Default: 1.", "NUMBER", minimum=1, is_local=True)]
    gpus: Annotated[
        int,
        Option(
            "GPUs of each node, with a rank for each. Default: 1, or 0 on a cluster without GPUs.", "NUMBER", minimum=0
        ),
    ]
    image: Annotated[str, Option("Image. Default: that of the operator.", "IMAGE", is_local=True)]
    requirements: Annotated[
        str,
        Option(
            "File of the directory with packages that pip installs before the script.",
            "FILE",
            is_local=True,
            is_for_new_code=True,
        ),
    ]
    env: Annotated[
        Mapping[str, str] | Sequence[str],
        Option("Environment variable of every rank; repeatable.", "NAME=VALUE", given=list[str], is_local=True),
    ]
    """Values by name, or NAME=VALUE."""
    share: Annotated[
        str,
        Option(
            "Share of Azure Files for the directory, logs and outputs. Default: a ConfigMap with the directory.",
            is_for_new_code=True,
        ),
    ]
    claim: Annotated[
        str,
        Option(
            "PersistentVolumeClaim for the directory, logs and outputs, instead of a share.",
            parsed=claim_name,
            is_for_new_code=True,
        ),
    ]
    account: Options
    """The storage account of the share, and its credentials."""
    mounts: Annotated[
        Mapping[str, str],
        Option(
            "PersistentVolumeClaim to mount at this path; repeatable.",
            "CLAIM=/PATH",
            ("--mount",),
            given=list[str],
            parsed=claim_paths,
        ),
    ]
    """Paths in the containers, by PersistentVolumeClaim."""
    queue: Annotated[str, Option("LocalQueue of Kueue that admits the job.")]
    experiment: Annotated[str, Option("Name of the experiment.", names=("--experiment", "-e"))]
    pool: Annotated[str, Option("Node pool that runs the job.", "POOL", ("--cluster", "-c"))]
    spot: Annotated[bool, Option("Prefer spot nodes.", None)]
    elastic: Annotated[
        tuple[int, int],
        Option("Elastic training with this number of nodes, such as 2:8.", "MIN:MAX", given=str, parsed=elastic_range),
    ]
    retries: Annotated[int, Option("Restarts after a failure of the script. Default: none.", "NUMBER", minimum=0)]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    quiet: Annotated[bool, Option("Show no progress.", None, ("--quiet", "-q"), is_local=True)]
    """Do not name what is left out on standard error."""


class SweepOptions(TypedDict, total=False):
    """The options of a sweep, each of which is one of `hvj run` and of commands of `hvj sweep`."""

    metric: Annotated[str, Option("Metric to optimize.")]
    goal: Annotated[
        str,
        Option(
            "Whether the metric is best when it is low or high. Default: as the programs of the jobs declare it.",
            "min|max",
            ("--goal", "--direction"),
        ),
    ]
    sampler: Annotated[
        str,
        Option(
            "grid (each combination once), tpe, random, cmaes or a class of optuna.samplers. Default: grid for lists, "
            "else tpe."
        ),
    ]
    trials: Annotated[int, Option("Number of trials of the sweep. Default: its own, or 20.", "NUMBER", minimum=1)]
    parallel: Annotated[
        int, Option("Trials of the sweep at the same time. Default: its own number, or 1.", "NUMBER", minimum=1)
    ]
    new: Annotated[bool, Option("Try all again with changed code, image or settings, apart from earlier trials.", None)]


class RunAndSweepOptions(RunOptions, SweepOptions):
    """The options of `Client.sweep`."""


def divided(options: RunAndSweepOptions) -> tuple[RunOptions, SweepOptions]:
    """The options of the run, and those of the sweep that are not None."""
    own = SweepOptions.__annotations__
    run = {name: value for name, value in options.items() if name not in own}
    sweep = {name: value for name, value in options.items() if name in own and value is not None}
    return cast(RunOptions, run), cast(SweepOptions, sweep)


def definition_fields(options: SweepOptions) -> dict[str, Any]:
    """The fields of the sweep's definition that the options replace."""
    return {"direction" if name == "goal" else name: value for name, value in options.items() if name != "new"}


@dataclass(frozen=True, slots=True)
class Declared:
    """An option of the command line, with its field and the type of what is written."""

    field: str
    names: tuple[str, ...]
    type: Any
    option: Option


def declared(options: Any = RunOptions) -> Iterator[Declared]:
    """The options of the command line in their order, by default those of a run."""
    for field, hint in get_type_hints(options, include_extras=True).items():
        if option := next((each for each in get_args(hint) if isinstance(each, Option)), None):
            given = option.given or get_args(hint)[0]
            yield Declared(field, option.names or (f"--{field}",), given, option)
