"""Entry point of `hvj` and `kubectl hvj`: runs one command and exits with its exit code."""

import atexit
import os
import sys
from pathlib import Path
from typing import NoReturn

INTERRUPTED = 130  # 128 + SIGINT, as shells report it
BROKEN_PIPE = 141  # 128 + SIGPIPE


def main() -> NoReturn:
    """Run the command of `sys.argv` and exit with its code."""
    try:
        from horovodjob_cli import commands

        code = commands.run(sys.argv[1:], program_name(sys.argv[0]))
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        # Exit immediately, without waiting for threads that read or write.
        atexit._run_exitfuncs()
        os._exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader closed the pipe; the interpreter's flush at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = BROKEN_PIPE
    sys.exit(code)


def program_name(path: str) -> str:
    """The name by which the user runs the program: kubectl runs `kubectl-hvj` for `kubectl hvj`."""
    return "kubectl hvj" if Path(path).name.startswith("kubectl-hvj") else "hvj"


if __name__ == "__main__":
    main()
