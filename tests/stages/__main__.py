"""Entry point of `python3 tests/stages`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Run as a directory, Python looks for modules inside it instead of beside it.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from stages.command_line import main

    sys.exit(main())
