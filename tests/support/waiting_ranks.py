"""Ranks that sleep while they wait for others, for machines with more ranks than processors."""

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("sleep_for_yield.c")


def sleeping_library(directory: Path) -> Path | None:
    """A library for LD_PRELOAD in this directory; None without a C compiler: then ranks that wait use processors."""
    if not (compiler := shutil.which("cc")):
        return None
    library = directory / "sleep_for_yield.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, SOURCE], check=True)
    return library
