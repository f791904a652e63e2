"""Runs scripts one after the other, each with a directory of its own: `run_scripts.py DIRECTORY SCRIPT ...`."""

import runpy
import sys
from pathlib import Path

directory, *scripts = map(Path, sys.argv[1:])
for script in scripts:
    own = directory / script.stem
    own.mkdir(exist_ok=True)
    sys.argv = [str(script), str(own)]
    runpy.run_path(str(script), run_name="__main__")
