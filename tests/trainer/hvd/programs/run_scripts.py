"""Runs scripts with the import hook, each with a directory of its own: `run_scripts.py DIRECTORY SCRIPT ...`."""

import runpy
import sys
from pathlib import Path

from horovodjob_trainer import import_hook

sys.modules.pop(import_hook.TENSORFLOW, None)  # the process has been forked from one with Horovod and without the hook
import_hook.install()
directory, *scripts = map(Path, sys.argv[1:])
for script in scripts:
    own = directory / script.stem
    own.mkdir(exist_ok=True)
    sys.argv = [str(script), str(own)]
    runpy.run_path(str(script), run_name="__main__")
