"""The node: its GPUs, and programs on its ranks. Imports no TensorFlow, which would occupy the GPUs."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROBES = "horovodjob_trainer.gpu_diagnostics.probes"
ERROR_PREFIXES = ("gpu_diagnostics: ", "synthetic_benchmark: ")
TERMINATION_SECONDS = 20.0
# Variables of an mpirun that started this program. With them, a second mpirun joins the first one.
LAUNCHER_VARIABLES = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "ORTE_")
# NCCL transfers the tensors, so that MPI needs only the loopback interface.
MPI_PARAMETERS = {
    "pml": "ob1",
    "btl": "self,tcp",
    "btl_tcp_if_include": "lo",
    "oob_tcp_if_include": "lo",
    "mpi_yield_when_idle": "1",
}


class ProgramError(Exception):
    """A program failed: a sentence, and the output of all ranks."""

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.output = output


@dataclass(frozen=True, slots=True)
class Node:
    """The devices of this node, and how programs start on them."""

    has_gpus: bool
    ranks: int
    quick: bool
    timeout_seconds: float
    python: tuple[str, ...]

    def run_probe(self, name: str, *, ranks: int = 1, variables: Mapping[str, str] | None = None) -> tuple[Any, str]:
        """The result of a function of the module `probes`, and the output of all ranks. Raises ProgramError."""
        with tempfile.TemporaryDirectory() as directory:
            result = Path(directory, "result.json")
            output = self.run_module(ranks, PROBES, name, self.device, str(result), variables=variables)
            return json.loads(result.read_text()), output

    def run_module(self, ranks: int, module: str, *arguments: str, variables: Mapping[str, str] | None = None) -> str:
        """The output of all ranks of a Python module under mpirun. Raises ProgramError."""
        parameters = [word for name, value in MPI_PARAMETERS.items() for word in ("-mca", name, value)]
        command = ["mpirun", "-np", str(ranks), "--host", f"localhost:{ranks}", "--bind-to", "none", *parameters]
        # A file, because ranks that do not end would keep a pipe open.
        with tempfile.TemporaryFile("w+", errors="replace") as log:
            environment = self._environment() | dict(variables or {})
            process = subprocess.Popen(
                [*command, *self.python, "-m", module, *arguments], env=environment, stdout=log, stderr=log
            )
            in_time = _wait(process, self.timeout_seconds)
            if not in_time:
                process.terminate()  # mpirun ends its ranks
                if not _wait(process, TERMINATION_SECONDS):
                    process.kill()
                    process.wait()
            log.seek(0)
            output = log.read()
        if not in_time:
            raise ProgramError(f"no result after {self.timeout_seconds:g} s on {ranks} ranks", output)
        if process.returncode:
            raise ProgramError(_error_line(output) or f"mpirun ended with exit code {process.returncode}", output)
        return output

    @property
    def device(self) -> str:
        """`gpu` or `cpu`."""
        return "gpu" if self.has_gpus else "cpu"

    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER_VARIABLES)}
        defaults = {
            "TF_CPP_MIN_LOG_LEVEL": "2",
            # The parts share the kernels that the driver compiles at first use.
            "CUDA_CACHE_PATH": str(Path(tempfile.gettempdir(), "cuda-cache")),
            "CUDA_CACHE_MAXSIZE": str(4 << 30),
        }
        fixed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "KERAS_BACKEND": "tensorflow"}
        return defaults | inherited | fixed | ({} if self.has_gpus else {"CUDA_VISIBLE_DEVICES": "-1"})


def visible_gpus() -> int:
    """Number of GPUs that a program can use; 0 without NVIDIA's driver."""
    listed = sum(line.startswith("GPU ") for line in nvidia_smi("-L"))
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return listed
    return min(listed, sum(1 for word in chosen.split(",") if word.strip() not in {"", "-1", "void"}))


def nvidia_smi(*arguments: str) -> list[str]:
    """The lines that nvidia-smi prints; none if it does not exist or fails."""
    try:
        done = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def _wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _error_line(output: str) -> str:
    for line in output.splitlines():
        for prefix in ERROR_PREFIXES:
            if line.startswith(prefix):
                return line.removeprefix(prefix)
    return ""
