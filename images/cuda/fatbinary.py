#!/usr/bin/env python3
"""NVIDIA's `fatbinary` as far as clang calls it, on the library that NVIDIA has for it, nvFatbin.

    fatbinary -64 --create OUT --image=profile=sm_70,file=MACHINE_CODE --image=profile=compute_90,file=PTX

nvFatbin's functions: https://docs.nvidia.com/cuda/nvfatbin/
"""

from __future__ import annotations

import argparse
import ctypes
from pathlib import Path

LIBRARY = Path(__file__).absolute().parents[1] / "lib64" / "libnvfatbin.so"


class Fatbin:
    """A container of machine code and PTX for several kinds of GPU."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(str(LIBRARY))
        self.library.nvFatbinGetErrorString.restype = ctypes.c_char_p
        self.handle = ctypes.c_void_p()
        options = (ctypes.c_char_p * 2)(b"-64", b"-cuda")
        self.call("Create", ctypes.byref(self.handle), options, ctypes.c_size_t(len(options)))

    def call(self, function: str, *arguments: object) -> None:
        """Calls nvFatbin; what it refuses ends the program with its message."""
        if code := getattr(self.library, f"nvFatbin{function}")(*arguments):
            message = self.library.nvFatbinGetErrorString(code).decode()
            raise SystemExit(f"fatbinary: nvFatbin{function} says {message}")

    def add(self, profile: str, path: Path) -> None:
        """Adds machine code (profile sm_70) or PTX (profile compute_70)."""
        kind, _, number = profile.partition("_")
        code = path.read_bytes()
        names = (number.encode(), path.name.encode())
        if kind == "sm":
            self.call("AddCubin", self.handle, code, ctypes.c_size_t(len(code)), *names)
        else:
            terminated = code + b"\0"  # PTX is a C string
            self.call("AddPTX", self.handle, terminated, ctypes.c_size_t(len(terminated)), *names, b"")

    def content(self) -> bytes:
        """The container's bytes."""
        size = ctypes.c_size_t()
        self.call("Size", self.handle, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call("Get", self.handle, buffer)
        return buffer.raw


def main() -> None:
    """Does what the command line says."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("-64", dest="wide", action="store_true", required=True)
    parser.add_argument("--create", type=Path, required=True)
    parser.add_argument("--image", action="append", required=True)
    arguments = parser.parse_args()
    fatbin = Fatbin()
    for image in arguments.image:
        fields = dict(field.split("=", 1) for field in image.split(","))
        fatbin.add(fields["profile"], Path(fields["file"]))
    arguments.create.write_bytes(fatbin.content())


if __name__ == "__main__":
    main()
