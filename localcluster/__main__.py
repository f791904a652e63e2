"""Entry point of `python3 localcluster COMMAND`."""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    # Run as a directory, Python looks for modules inside it instead of beside it.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from localcluster.command_line import main

    os.umask(0o022)
    sys.exit(main())
