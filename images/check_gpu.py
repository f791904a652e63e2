"""Checks TensorFlow and Horovod for GPUs as far as that goes without a GPU: says what it finds, or fails.

The build of the trainer image for GPUs runs it, with the Python of the environment that it checks.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

PACKAGES = Path(sysconfig.get_path("purelib"))
NVIDIA = PACKAGES / "nvidia"
# Comes from the node, with NVIDIA's container runtime.
DRIVER = "libcuda.so.1"
WANTED = ("TensorFlow", "MPI", "Gloo", "NCCL")
ARCHITECTURES = ["70", "75", "80", "86", "89", "90"]
# What TensorFlow opens by name when it looks for GPUs. Without one of them, it uses none.
OPENED = ("libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11", "libcusolver.so.11",
          "libcusparse.so.12", "libcudnn.so.9")  # fmt: skip
OPEN = "_ZN3tsl8internal18LoadDynamicLibraryEPKcPPv"  # which searches as TensorFlow does


def output(*command: str | Path, **environment: str) -> str:
    """What a command prints; its failure is the check's."""
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\n{command[0]} ended with {done.returncode}")
    return done.stdout


def horovod() -> Path:
    """Horovod's library for TensorFlow."""
    (library,) = (PACKAGES / "horovod/tensorflow").glob("mpi_lib*.so")
    return library


def built_with() -> Iterator[str]:
    """Checks what Horovod says of itself."""
    said = output(Path(sys.prefix, "bin", "horovodrun"), "--check-build", TF_CPP_MIN_LOG_LEVEL="3")
    yield said[said.index("Available Frameworks") :].rstrip()
    for name in WANTED:
        if not re.search(rf"\[X\] {name}\s", said):
            yield f"FAILED: Horovod was built without {name}"


def links() -> Iterator[str]:
    """Checks that Horovod finds its libraries by itself, and every symbol in them."""
    said = output("ldd", "-r", horovod())
    for name in ("libnccl.so.2", "libcudart.so.12", "libmpi.so.40", "libtensorflow_cc.so.2"):
        found = re.search(rf"{re.escape(name)} => (/\S+)", said)
        yield f"{name} => {Path(found[1]).resolve()}" if found else f"FAILED: Horovod is not linked with {name}"
    yield from (f"FAILED: {line.strip()}" for line in said.splitlines() if re.search("not found|undefined", line))


def kernels() -> Iterator[str]:
    """Checks for which GPUs there is machine code of Horovod's kernels, by the names that it carries."""
    found = sorted(set(re.findall(rb"cuda_kernels-sm_(\d+)-\w+\.(?:o|cubin)", horovod().read_bytes())))
    numbers = [number.decode() for number in found]
    yield f"machine code for sm_{', sm_'.join(numbers)}"
    if numbers != ARCHITECTURES:
        yield f"FAILED: that should be {', '.join(ARCHITECTURES)}"


def closed() -> Iterator[str]:
    """Checks that TensorFlow's CUDA libraries want nothing that is not there, but for the driver."""
    libraries = [*NVIDIA.glob("*/lib/*.so*"), *PACKAGES.glob("tensorflow/libtensorflow_*.so*")]
    path = ":".join(str(folder) for folder in NVIDIA.glob("*/lib"))
    missing = set()
    for library in libraries:
        missing |= set(re.findall(r"(\S+) => not found", output("ldd", library, LD_LIBRARY_PATH=path)))
    yield f"{len(libraries)} libraries of CUDA and TensorFlow want nothing but {' '.join(missing) or 'each other'}"
    yield from (f"FAILED: no library has {name}" for name in missing - {DRIVER})


def opened() -> Iterator[str]:
    """Checks that TensorFlow finds the libraries that it opens by name."""
    framework = ctypes.CDLL(str(PACKAGES / "tensorflow/libtensorflow_framework.so.2"))
    for name in OPENED:
        status, library = (ctypes.c_uint64 * 4)(), ctypes.c_void_p()
        framework[OPEN](ctypes.byref(status), name.encode(), ctypes.byref(library))
        if not library.value:
            yield f"FAILED: TensorFlow does not find {name} (images/cuda/links.sh)"
    yield f"TensorFlow looked for {', '.join(OPENED)}"


def versions() -> Iterator[str]:
    """Checks that TensorFlow has CUDA and that NCCL can be called."""
    show = "import json, tensorflow; print(json.dumps(dict(tensorflow.sysconfig.get_build_info())))"
    yield output(sys.executable, "-c", show, TF_CPP_MIN_LOG_LEVEL="3").splitlines()[-1]
    version = ctypes.c_int()
    if ctypes.CDLL(str(NVIDIA / "nccl/lib/libnccl.so.2")).ncclGetVersion(ctypes.byref(version)):
        yield "FAILED: NCCL does not report its version"
    yield f"NCCL {version.value}"


def compiler() -> Iterator[str]:
    """Checks that XLA's tools are where TensorFlow looks for them."""
    yield output(NVIDIA / "cuda_nvcc/bin/ptxas", "--version").splitlines()[-1]
    if not (NVIDIA / "cuda_nvcc/nvvm/libdevice/libdevice.10.bc").is_file():
        yield "FAILED: libdevice is missing"


def size() -> Iterator[str]:
    """Says what takes the space."""
    for path in (Path(sys.prefix), NVIDIA, PACKAGES / "tensorflow"):
        yield f"{int(output('du', '-sk', path).split()[0]) / 1e6:.2f} GB  {path}"


def main() -> int:
    """Runs all checks, and reports all that failed."""
    lines = [
        line for check in (built_with, links, kernels, closed, opened, versions, compiler, size) for line in check()
    ]
    print("\n".join(f"check: {line}" for text in lines for line in text.splitlines()), flush=True)
    return any(line.startswith("FAILED") for line in lines)


if __name__ == "__main__":
    sys.exit(main())
