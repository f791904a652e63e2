"""The diagnostics of a node's GPUs, on CPUs: parts, report and exit code. No test here needs or measures a GPU."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any

DIAGNOSTICS = [sys.executable, "-m", "horovodjob_trainer.gpu_diagnostics"]
# In the place of Python: two programs that fail, one of them as if the memory of a GPU were too small.
FAILING = """#!/bin/sh
case "$*" in
*"probes tf32"*) echo "gpu_diagnostics: RuntimeError: no | kernel"; exit 1;;
*"--batch-size 128"*) echo "OOM when allocating tensor"; exit 1;;
esac
exec {python} "$@"
"""


def section(report: str, name: str) -> list[list[str]]:
    """The cells of the table of a part, without its header."""
    (text,) = re.findall(rf"^## {name}\n\n((?:\|.*\n?)+)", report, re.MULTILINE)
    return [re.split(r" \| ", line.strip("| ")) for line in text.splitlines()[2:]]


def test_a_failing_part_is_a_line_of_the_report_and_the_other_parts_run(
    run: Any, preloaded_python: list[str], tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text(FAILING.format(python=shlex.join(preloaded_python)))
    python.chmod(0o755)
    # Under an mpirun with one rank, as in a HorovodJob.
    ended = run(1, [*DIAGNOSTICS, "--device", "cpu", "--quick", "--python", str(python)])
    assert ended.code == 1, ended.stderr
    outcomes = dict(re.findall(r"^\| (\w+) \| (passed|FAILED|skipped) \|", ended.stdout, re.MULTILINE))
    passed = dict.fromkeys(["versions", "devices", "allreduce", "precision", "steps", "scaling"], "passed")
    assert outcomes == passed | {"tf32": "FAILED"}
    assert "| RuntimeError: no \\| kernel |" in ended.stdout
    assert [row[:3] for row in section(ended.stdout, "devices")] == [
        ["0", "0", "CPU of local rank 0"],
        ["1", "1", "CPU of local rank 1"],
    ]
    assert [row[0] for row in section(ended.stdout, "precision")] == ["float32", "mixed_float16", "mixed_bfloat16"]
    large, small = section(ended.stdout, "steps")
    assert large[:2] == ["128", "out of memory"]
    assert small[0] == "64"
    assert float(small[2]) > 0
    assert [row[:2] for row in section(ended.stdout, "scaling")] == [["1", "64"], ["2", "64"]]


def test_a_part_without_a_result_ends_after_its_time_with_its_ranks(run: Any) -> None:
    sleep = "sh -c 'echo started; exec sleep 1000' sh"
    flags = ["--device", "cpu", "--only", "devices", "--timeout-seconds", "10", "--python", sleep]
    ended = run(1, [*DIAGNOSTICS, *flags])
    assert ended.code == 1
    assert "no result after 10 s on 2 ranks" in ended.stdout
    assert "started\nstarted\n" in ended.stdout


def test_without_a_gpu_the_diagnostics_end_with_a_sentence_and_exit_code_2(run: Any) -> None:
    ended = run(1, DIAGNOSTICS, {"CUDA_VISIBLE_DEVICES": ""})
    assert ended.code == 2
    assert "gpu_diagnostics: nvidia-smi lists no GPU here: run it on a node with GPUs" in ended.stderr
    assert ended.stdout == ""
