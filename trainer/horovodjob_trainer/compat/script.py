"""Runs a script as Python does, with the same name, arguments, search path and tracebacks."""

import builtins
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from types import ModuleType, TracebackType

from horovodjob_trainer.errors import UsageError


@dataclass(frozen=True, slots=True)
class Script:
    """The source of a script; `name` is its path on the command line."""

    name: str
    path: str
    source: bytes

    def run(self, arguments: Sequence[str]) -> None:
        """Run it as `__main__`. Its exceptions are not caught."""
        module = ModuleType("__main__")
        vars(module).update(
            __annotations__={},
            __builtins__=builtins,
            __cached__=None,
            __file__=self.path,
            __loader__=SourceFileLoader("__main__", self.path),
        )
        sys.argv = [self.name, *arguments]
        if not sys.flags.safe_path:
            sys.path[0] = os.path.dirname(os.path.realpath(self.path))
        sys.modules["__main__"] = module
        exec(compile(self.source, self.path, "exec", dont_inherit=True), vars(module))  # noqa: S102

    def traceback(self, error: BaseException) -> TracebackType | None:
        """The traceback of the error, beginning in the script; None if the script does not compile."""
        step = error.__traceback__
        while step is not None and step.tb_frame.f_code.co_filename != self.path:
            step = step.tb_next
        return step


def read_script(name: str) -> Script:
    """Read the script in the file `name`. Raises UsageError if it cannot be read."""
    path = os.path.join(os.getcwd(), name)
    try:
        with open(path, "rb") as file:
            return Script(name, path, file.read())
    except OSError as error:
        raise UsageError(f"cannot read the script '{name}': {error.strerror or error}") from error
