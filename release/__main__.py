"""Entry point of `python release`, with the repository's environment (.venv)."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # The images are built, and the binaries found, by what the tests use.
    root = Path(__file__).resolve().parent.parent
    sys.path += [str(root / "tests"), str(root)]
    from horovodjob_release.command_line import main

    sys.exit(main())
