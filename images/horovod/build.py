#!/usr/bin/env python3
"""Builds Horovod for the TensorFlow of a Python environment: the source distribution of uv.lock with our patches.

    python3 images/horovod/build.py --python .venv/bin/python --wheels ~/.cache/horovodjob/horovod

prints the path of the wheel, which is built once for each state of what it depends on. The environment needs Horovod's
own dependencies and setuptools; the machine needs a compiler, CMake, `patch` and Open MPI. docs/horovod-versions.md
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
PATCHES = HERE / "patches"
LOCK = HERE.parents[1] / "uv.lock"
CUDA = HERE.parent / "cuda"
PROGRAMS = ("c++", "make", "cmake", "patch", "mpicxx")
# -gtoggle and -s leave out debug information, a third of the compiler's time. `make` exports its own MAKEFLAGS, with
# which Horovod's build would use one processor.
VARIABLES = {
    "HOROVOD_WITH_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_PYTORCH": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITH_MPI": "1",
    "HOROVOD_WITH_GLOO": "1",
    "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # CMake 4 rejects what Horovod and Gloo ask for
    "MAKEFLAGS": "-j8",
    "SOURCE_DATE_EPOCH": "0",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
FLAGS = {"CFLAGS": "-gtoggle", "CXXFLAGS": "-gtoggle", "LDFLAGS": "-s"}
# Machine code for V100, T4, A100, A10, L4 and H100, and PTX for what comes after them.
CUDA_VARIABLES = {
    "HOROVOD_GPU_OPERATIONS": "NCCL",
    "HOROVOD_NCCL_LINK": "SHARED",
    "HOROVOD_BUILD_CUDA_CC_LIST": "70,75,80,86,89,90",
}
ASK_PYTHON = """
import json, sysconfig
from importlib.metadata import distributions
found = {one.name.replace("_", "-"): one.version for one in distributions()}
packages = ("tensorflow", "tensorflow-cpu", "nvidia-cuda-runtime-cu12", "nvidia-nccl-cu12")
print(json.dumps([sysconfig.get_config_var("SOABI"), {name: found[name] for name in packages if name in found}]))
"""


class BuildError(Exception):
    """Horovod cannot be built; the message contains the cause."""


def source() -> tuple[str, str]:
    """The address and the SHA-256 of Horovod's source distribution in uv.lock."""
    packages = tomllib.loads(LOCK.read_text())["package"]
    (sdist,) = (package["sdist"] for package in packages if package["name"] == "horovod")
    return sdist["url"], sdist["hash"].removeprefix("sha256:")


def patches() -> list[Path]:
    """The patches in the order in which they are applied."""
    return sorted(PATCHES.glob("*.patch"))


def key(python: str, *, cuda: Path | None = None) -> str:
    """A hash of what the wheel depends on: source, patches, settings, Python, TensorFlow, compiler, CUDA."""
    answer = subprocess.run([python, "-c", ASK_PYTHON], stdout=subprocess.PIPE, check=True).stdout
    if not json.loads(answer)[1]:
        raise BuildError(f"install TensorFlow for {python} first: Horovod is compiled against it")
    compilers = [os.environ.get(name, "") for name in ("CC", "CXX")]
    settings = [source()[1], VARIABLES, FLAGS, compilers, CUDA_VARIABLES if cuda else {}]
    digest = hashlib.sha256(json.dumps(settings).encode() + answer)
    for path in (*patches(), *(sorted(CUDA.iterdir()) if cuda else ())):
        digest.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def download(wheels: Path) -> Path:
    """The source distribution, in the folder of wheels."""
    address, expected = source()
    archive = wheels / address.rsplit("/", 1)[1]
    if not archive.exists():
        partial = archive.with_suffix(".partial")
        with urllib.request.urlopen(address, timeout=60) as answer, partial.open("wb") as file:
            shutil.copyfileobj(answer, file)
        partial.rename(archive)
    if hashlib.sha256(archive.read_bytes()).hexdigest() != expected:
        archive.unlink()
        raise BuildError(f"{address} does not have the SHA-256 of uv.lock")
    return archive


def cuda_variables(cuda: Path) -> dict[str, str]:
    """The settings of a build for GPUs, with paths, on which the wheel does not depend."""
    toolkit = str(cuda.absolute())
    paths = {"HOROVOD_CUDA_HOME": toolkit, "HOROVOD_NCCL_HOME": toolkit}
    return CUDA_VARIABLES | paths | {"CMAKE_TOOLCHAIN_FILE": str(CUDA / "horovod.cmake")}


def unpack(archive: Path, folder: Path) -> Path:
    """The sources as they were published, in a new folder of `folder`."""
    shutil.unpack_archive(archive, folder)
    return folder / archive.name.removesuffix(".tar.gz")


def apply_patches(sources: Path, *, without: str = "") -> None:
    """Apply the patches; `without` names one to leave out."""
    for path in patches():
        if path.stem != without:
            command = ["patch", "--strip=1", "--fuzz=0", "--forward", f"--input={path}"]
            done = subprocess.run(command, cwd=sources, capture_output=True, text=True, check=False)
            if done.returncode:
                raise BuildError(f"{path.name} does not apply to {source()[0]}:\n{done.stdout}")


def compile_wheel(python: str, sources: Path, log: Path, *, cuda: Path | None) -> Path:
    """The wheel of the sources, for the TensorFlow of `python`."""
    if missing := [program for program in PROGRAMS if not shutil.which(program)]:
        raise BuildError(f"install {', '.join(missing)}: Horovod has no wheels and is compiled")
    # The paths of sources in the library would be another one in each build.
    flags = {name: f"{value} -ffile-prefix-map={sources}=." for name, value in FLAGS.items() if name != "LDFLAGS"}
    variables = VARIABLES | (cuda_variables(cuda) if cuda else {**FLAGS, **flags})
    path = os.pathsep.join([str(Path(python).parent), os.environ.get("PATH", "")])
    command = [python, "setup.py", "bdist_wheel"]
    with log.open("w") as file:
        environment = {**os.environ, **variables, "PATH": path}
        done = subprocess.run(command, cwd=sources, env=environment, stdout=file, stderr=file, check=False)
    if done.returncode:
        lines = log.read_text(errors="replace").splitlines()
        shown = [line for line in lines if "error:" in line][:20] or lines[-20:]
        raise BuildError("\n".join([*shown, f"Horovod's build ended with {done.returncode}; all output is in {log}"]))
    (wheel,) = (sources / "dist").glob("*.whl")
    return wheel


def build(python: str, wheels: Path, *, cuda: Path | None = None) -> Path:
    """The wheel for the TensorFlow of `python`, from the folder of wheels or built into it. Raises BuildError.

    `cuda` is a folder that images/cuda/toolkit.sh made, for a build for GPUs.
    """
    python = str(Path(python).absolute())
    folder = wheels / key(python, cuda=cuda)
    if not folder.exists():
        wheels.mkdir(parents=True, exist_ok=True)
        build_folder(folder, python, cuda=cuda)
    (wheel,) = folder.glob("*.whl")
    return wheel


def build_folder(folder: Path, python: str, *, cuda: Path | None) -> None:
    """Build the wheel into a new folder among the other wheels, unless another process does so first."""
    wheels = folder.parent
    with (wheels / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return
        for leftover in wheels.glob("tmp*"):  # of a build that was killed
            shutil.rmtree(leftover)
        print(f"compiling Horovod into {folder}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(dir=wheels) as scratch:
            sources = unpack(download(wheels), Path(scratch))
            apply_patches(sources)
            wheel = compile_wheel(python, sources, wheels / "build.log", cuda=cuda)
            wheel.parent.rename(folder)


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="the Python of the environment that has TensorFlow")
    parser.add_argument("--wheels", type=Path, required=True, help="the folder of wheels that were built")
    parser.add_argument("--cuda", type=Path, help="for GPUs, with the folder that images/cuda/toolkit.sh made")
    arguments = parser.parse_args()
    try:
        print(build(arguments.python, arguments.wheels, cuda=arguments.cuda))
    except (BuildError, OSError, subprocess.CalledProcessError) as error:
        print(f"horovod: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
