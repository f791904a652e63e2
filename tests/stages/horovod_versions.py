"""Horovod with each version of TensorFlow and Python: builds for CPUs and GPUs, and tests over MPI and Gloo."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stages.commands import BYTECODE, call, output
from stages.debian import install_packages
from stages.python_environment import find_python, find_uv, install_compilers, install_horovod
from stages.settings import CACHE, ROOT, StageError

# The newest release of each version, and the Pythons that it has wheels for.
VERSIONS = {"2.19.1": ("3.11", "3.12"), "2.20.0": ("3.11", "3.12", "3.13"), "2.21.0": ("3.11", "3.12", "3.13")}
KERAS = "3.15.1"
# Keras 2 without its requirement `tensorflow`, which would land over `tensorflow-cpu`.
KERAS_2 = {"2.19.1": "2.19.0", "2.20.0": "2.20.1", "2.21.0": "2.21.0"}
PACKAGES = (
    "click>=8.5,<9",
    "cloudpickle",
    "h5py>=3.11",
    "hypothesis",
    "packaging",
    "psutil",
    "pytest>=9",
    "pytest-asyncio>=1.3",
    "pyyaml>=6",
    "scipy>=1.13",
    "setuptools<81",
    "tensorboard",
    "wheel",
)
PATCH_TESTS = ("tests/trainer/horovod_build",)
# Two ranks of 32 examples end like one of 64; ranks join and are killed over Gloo.
MPI_TESTS = ("tests/trainer/hvd/test_layer.py",)
GLOO_TESTS = ("tests/trainer/hvd/test_elastic.py",)
# A run that was killed ends with the bits of one that was not; the script of 2018 runs with Keras 2; models are saved.
TRAINER_TESTS = ("tests/trainer/run/test_resume.py", "tests/trainer/compat", "tests/trainer/run/test_saved_models.py")
HEADER = ("TensorFlow", "Python", "build, patches", "MPI", "Gloo, elastic", "trainer", "build for GPUs")
NOT_NECESSARY = "-"


@dataclass(slots=True)
class Row:
    """A line of the table: versions, and the outcome of each part."""

    tensorflow: str
    python: str
    outcomes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What ONLY selects by."""
        return f"{self.tensorflow}-python{self.python}"

    @property
    def passed(self) -> bool:
        """Whether each part has passed."""
        return not {"FAILED", "not run"}.intersection(self.outcomes)

    @property
    def builds_for_gpus(self) -> bool:
        """Whether Horovod is also built for GPUs: once for each TensorFlow, since the library uses no Python."""
        return self.python == VERSIONS[self.tensorflow][-1]

    def run(self, part: Callable[[], None]) -> None:
        """Run a part unless an earlier one failed, and keep its outcome."""
        if any(outcome == "FAILED" for outcome in self.outcomes):
            self.outcomes.append("not run")
            return
        started = time.monotonic()
        try:
            part()
        except (StageError, subprocess.CalledProcessError) as error:
            print(f"{self.name}: {error}", file=sys.stderr, flush=True)
            self.outcomes.append("FAILED")
        else:
            self.outcomes.append(f"passed, {time.monotonic() - started:.0f} s")


def check_versions() -> None:
    """Run each combination that ONLY selects by a part of its name, and print the table. Raises StageError."""
    rows = [row for row in all_rows() if os.environ.get("ONLY", "") in row.name]
    if not rows:
        raise StageError(f"ONLY={os.environ['ONLY']} selects none of {', '.join(row.name for row in all_rows())}")
    for row in rows:
        print(f"\n== {row.name}", flush=True)
        check(row)
    print("\n" + "\n".join(table(rows)), flush=True)
    if failed := [row.name for row in rows if not row.passed]:
        raise StageError(f"these did not pass: {', '.join(failed)}")


def all_rows() -> list[Row]:
    """Every combination that is supported."""
    return [Row(tensorflow, python) for tensorflow, pythons in VERSIONS.items() for python in pythons]


def check(row: Row) -> None:
    """Build and test one combination in an environment of its own."""
    interpreter = find_python((f"python{row.python}",))
    install_compilers(interpreter)
    folder = CACHE / "horovod-versions" / row.name
    python = folder / "bin" / "python"

    def build() -> None:
        install = new_environment(folder, interpreter)
        call(*install, f"tensorflow-cpu=={row.tensorflow}", f"keras=={KERAS}", *PACKAGES)
        call(*install, "--no-deps", f"tf-keras=={KERAS_2[row.tensorflow]}")
        install_horovod(python)
        run_tests(python, *PATCH_TESTS)

    row.run(build)
    row.run(lambda: run_tests(python, *MPI_TESTS))
    row.run(lambda: run_tests(python, *GLOO_TESTS))
    row.run(lambda: run_tests(python, *TRAINER_TESTS))
    if row.builds_for_gpus:
        row.run(lambda: build_for_gpus(row, interpreter, folder))
    else:
        row.outcomes.append(NOT_NECESSARY)
    shutil.rmtree(folder, ignore_errors=True)


def build_for_gpus(row: Row, interpreter: str, folder: Path) -> None:
    """Build Horovod for the TensorFlow with CUDA, and check it as far as that goes without a GPU. Raises StageError."""
    install_packages("clang-19")
    install = new_environment(folder, interpreter)
    python = folder / "bin" / "python"
    call(*install, f"tensorflow[and-cuda]=={row.tensorflow}", f"keras=={KERAS}", *PACKAGES, *cuda_packages())
    packages = output(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    call(ROOT / "images" / "cuda" / "toolkit.sh", packages, folder / "cuda")
    install_horovod(python, "--cuda", str(folder / "cuda"))
    call(ROOT / "images" / "cuda" / "links.sh", packages)
    call(python, ROOT / "images" / "check_gpu.py")


def cuda_packages() -> Iterator[str]:
    """CUDA in the versions of the image, but for NCCL, whose version some releases of TensorFlow fix."""
    for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]:
        if package["name"].startswith("nvidia-") and package["name"] != "nvidia-nccl-cu12":
            yield f"{package['name']}=={package['version']}"


def new_environment(folder: Path, interpreter: str) -> tuple[str | Path, ...]:
    """Make an empty environment; the command that installs into it."""
    shutil.rmtree(folder, ignore_errors=True)
    uv = find_uv(find_python())
    call(uv, "venv", "--quiet", "--python", interpreter, folder)
    return uv, "pip", "install", "--quiet", "--python", folder / "bin" / "python"


def run_tests(python: Path, *files: str) -> None:
    """Run tests in the environment of a Python. Raises StageError."""
    path = os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])
    call(
        python,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        *files,
        PATH=path,
        PYTHONPATH=str(ROOT / "trainer"),
        **BYTECODE,
    )


def table(rows: list[Row]) -> Iterator[str]:
    """The table of docs/horovod-versions.md."""
    yield f"| {' | '.join(HEADER)} |"
    yield f"|{' --- |' * len(HEADER)}"
    for row in rows:
        yield f"| {' | '.join((row.tensorflow, row.python, *row.outcomes))} |"
