"""Entry point of `python3 localcluster COMMAND`."""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    # As a program, Python imports from this directory instead of the root of the project.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from localcluster.command_line import main

    os.umask(0o022)
    sys.exit(main())
