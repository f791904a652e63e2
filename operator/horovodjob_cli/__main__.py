"""Entry points of `hvj`, of `kubectl hvj` and of its completion; a command ends with its exit code."""

import atexit
import io
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

INTERRUPTED = 130  # 128 + SIGINT, as shells report it
TERMINATED = 143  # 128 + SIGTERM
BROKEN_PIPE = 141  # 128 + SIGPIPE


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does: a transfer leaves no partial file."""


def main() -> NoReturn:
    """Run the command of `sys.argv` and exit with its code."""
    before = signal.signal(signal.SIGTERM, terminate)
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
        sys.stdout.reconfigure(encoding="utf-8")  # as files of YAML and JSON have to be; Windows has another default
    try:
        from horovodjob_cli import commands

        code = commands.run(sys.argv[1:], program_name(sys.argv[0]))
        sys.stdout.flush()
    except KeyboardInterrupt as interruption:
        sys.stderr.write("\n")
        # Exit immediately, without waiting for threads that read or write.
        atexit._run_exitfuncs()
        os._exit(TERMINATED if isinstance(interruption, Terminated) else INTERRUPTED)
    except BrokenPipeError:
        # The reader closed the pipe; the interpreter's flush at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = BROKEN_PIPE
    finally:
        signal.signal(signal.SIGTERM, before)
    sys.exit(code)


def complete() -> None:
    """Print completions for kubectl, which runs `kubectl_complete-hvj` with the words after `kubectl hvj`."""
    from horovodjob_cli import commands

    sys.stdout.write(commands.kubectl_completion(sys.argv[1:]))


def terminate(*_: object) -> NoReturn:
    """Raises Terminated in the main thread, once."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated


def program_name(path: str) -> str:
    """The name by which the user runs the program: kubectl runs `kubectl-hvj` for `kubectl hvj`."""
    return "kubectl hvj" if Path(path).name.startswith("kubectl-hvj") else "hvj"


if __name__ == "__main__":
    main()
