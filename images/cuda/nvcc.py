#!/usr/bin/env python3
"""NVIDIA's compiler driver as far as Horovod's build calls it, on clang.

NVIDIA's Python packages for CUDA 12 have no compiler. They have what is NVIDIA's own in a compiler: the assembler
ptxas, libdevice and the headers; clang does the rest. https://llvm.org/docs/CompileCudaWithLLVM.html
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

CLANG = "clang++-19"
CUDA = Path(__file__).absolute().parents[1]


def version() -> str:
    """The toolkit's version in nvcc's words, which CMake reads."""
    found = re.search(r"#define CUDART_VERSION +(\d+)", (CUDA / "include/cuda_runtime_api.h").read_text())
    if not found:
        raise SystemExit(f"nvcc: {CUDA}/include/cuda_runtime_api.h does not say its version")
    release = f"{int(found[1]) // 1000}.{int(found[1]) % 1000 // 10}"
    return f"Cuda compilation tools, release {release}, V{release}.0"


def translated(arguments: list[str]) -> Iterator[str]:
    """The arguments in clang's words."""
    # 12.5 is newer than what clang 19 was tested with, and it says so at each call.
    yield from (f"--cuda-path={CUDA}", "--no-cuda-include-ptx=all", "-Wno-unknown-cuda-version")
    rest = iter(arguments)
    for word in rest:
        if word == "-Xcompiler":
            yield next(rest)
        elif word == "-gencode":
            yield from offload(next(rest))
        else:
            yield word


def offload(option: str) -> Iterator[str]:
    """What -gencode asks for, such as arch=compute_90,code="sm_90,compute_90": machine code for sm, PTX for compute."""
    found = re.fullmatch(r'arch=compute_\d+,code="?([a-z0-9_,]+)"?', option)
    if not found:
        raise SystemExit(f"nvcc: -gencode {option} is not understood")
    for code in found[1].split(","):
        kind, _, number = code.partition("_")
        yield f"--offload-arch=sm_{number}" if kind == "sm" else f"--cuda-include-ptx=sm_{number}"


if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        print(version(), flush=True)
    os.execlp(CLANG, CLANG, *translated(sys.argv[1:]))
