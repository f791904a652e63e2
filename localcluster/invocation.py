"""`python3 localcluster` as tests and demonstrations call it."""

import subprocess
import sys
from pathlib import Path

from localcluster.settings import Cluster


def invoke(cluster: Cluster, *arguments: str) -> str:
    """What a command of the local cluster prints, without its progress. Raises CalledProcessError if it fails."""
    line = [sys.executable, str(Path(__file__).parent), "--name", cluster.name, *arguments]
    try:
        return subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()
    except subprocess.CalledProcessError as error:
        error.add_note(error.stderr)
        raise
