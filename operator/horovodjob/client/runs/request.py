"""The request of `hvj run`, `Client.run` or `Client.sweep`: a program with its directory, and options."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from horovodjob.azurefiles.credentials import Options
from horovodjob.client.errors import UsageError
from horovodjob.client.messages import message
from horovodjob.client.runs.options import RunOptions


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A program of a directory with its arguments, and the options that are given.

    The program is a script, a module of Python, or a command whose words are `args`.
    """

    script: str | None = None
    args: tuple[str, ...] = ()
    options: RunOptions = field(default_factory=RunOptions)
    source: str | None = None  # the job to run again
    is_command: bool = False
    generated: Mapping[str, Path] = field(default_factory=dict)  # files beside those of the directory, by path

    @property
    def directory(self) -> Path:
        """The directory that the job gets."""
        return Path(self.options.get("workdir") or "")

    @property
    def account(self) -> Options:
        """The storage account of the share."""
        return self.options.get("account") or Options()

    @property
    def variables(self) -> Sequence[str]:
        """The environment variables, as NAME=VALUE."""
        env = self.options.get("env") or ()
        return [f"{name}={value}" for name, value in env.items()] if isinstance(env, Mapping) else env

    @property
    def local_ranks(self) -> int:
        """How many ranks all nodes have together where no cluster decides: one for each GPU, at least one a node."""
        nodes = self.options.get("nodes") or self.options.get("elastic", (1, 1))[1]
        return nodes * max(self.options.get("gpus", 1), 1)


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
    args, command = options.get("args") or (), options.get("command") or ()
    if sum(each is not None for each in (program or None, options.get("module"), command or None)) > 1:
        raise UsageError("script, module and command name a program each; use one of them")
    given = RunOptions(**{name: value for name, value in options.items() if value is not None})  # type: ignore[typeddict-item]
    if callable(program):
        from horovodjob.client.runs import function_script

        script = function_script.write(program, arguments, args, directory)
        if "workdir" not in given and not given.get("quiet"):
            for module in function_script.modules_of(script, Path.cwd()):
                message(
                    f"{script.stem} imports {module}, which is a file of this directory and is not sent with a "
                    "function: add workdir='.', unless the image has it"
                )
        given.setdefault("workdir", directory)
        return RunRequest(script.name, (), given, source, generated={script.name: script})
    if isinstance(args, Mapping):
        raise UsageError("args has names, which only a function takes; use a list for a script")
    words = (*command, *arguments, *args)
    return RunRequest(program, tuple(map(str, words)), given, source, is_command=bool(command))
