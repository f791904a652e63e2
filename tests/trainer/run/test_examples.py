"""The example in C."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[3] / "manifests" / "examples"


def test_the_program_in_c_passes_a_number_around(run: Callable[..., Any], tmp_path: Path) -> None:
    subprocess.run(["mpicc", "-o", tmp_path / "ring", EXAMPLES / "mpi-c" / "ring.c"], check=True)
    done = run(4, [str(tmp_path / "ring")])
    assert (done.code, done.stdout) == (0, "the sum of 4 ranks is 6\n")
