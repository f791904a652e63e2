"""`hvj run`: a directory with a script, on real pods."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.access import DEADLINE_SECONDS
from e2e.install import Target
from e2e.namespace import Namespace

HVJ = Path(sys.executable).with_name("hvj")
SCRIPT = """
import os, sys
from package.words import GREETING
print(GREETING, os.environ["OMPI_COMM_WORLD_RANK"], os.getcwd(), sys.argv[1:], flush=True)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A script that imports a package beside it."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "words.py").write_text("GREETING = 'hello from rank'\n")
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def test_one_command_runs_a_directory_on_two_nodes_and_exits_with_its_code(
    namespace: Namespace, target: Target, directory: Path
) -> None:
    def hvj(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [HVJ, "run", "-w", namespace.name, *arguments],
            cwd=directory,
            env=os.environ | {"KUBECONFIG": str(target.kubeconfig)},
            stdout=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        return done.returncode, done.stdout

    code, output = hvj("--image", namespace.image, "--gpus", "0", "--nodes", "2", "--name", "hello", "train.py", "0")
    assert code == 0
    for rank in (0, 1):
        assert f"hello from rank {rank} /job/code ['0']" in output
    code, output = hvj("--from", "hello", "--nodes", "1", "--name", "again", "--", "7")
    assert (code, "hello from rank 0 /job/code ['7']" in output) == (7, True)
