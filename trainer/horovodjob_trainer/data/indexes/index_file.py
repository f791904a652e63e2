"""Index files: what the first start has learned about the files of a data set, for later starts."""

import os
import secrets
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from horovodjob_trainer.atomic_file import atomic_write
from horovodjob_trainer.errors import error_reason

FORMAT = 1  # a file of another format is ignored; an index can have one of its own
RECENT_NANOSECONDS = 2_000_000_000
NEVER = -1
Arrays = Mapping[str, npt.NDArray[Any]]


def index_paths(kind: str, data: Path, output: Path | None) -> tuple[Path, ...]:
    """The places of an index in order of preference: beside the data, then in the output directory of the run."""
    paths = (data / f".horovodjob-{kind}-index.npz",)
    if output is None:
        return paths
    folder = zlib.crc32(os.fsencode(data.absolute()))  # runs with other data can use the same output directory
    return (*paths, output / f".horovodjob-{kind}-index-{folder:08x}.npz")


def read_index(
    paths: Sequence[Path], names: Sequence[str], log: Callable[[str], None], file_format: int = FORMAT
) -> dict[str, Any] | None:
    """The arrays with these names in the first of the files that exists and is intact, else None."""
    for path in paths:
        try:
            with np.load(path, allow_pickle=False) as file:  # checks the checksum of each array
                if int(file["format"]) == file_format:
                    return {name: file[name] for name in names}
        except FileNotFoundError:
            continue
        except Exception as error:  # NumPy, zipfile and zlib raise many types
            log(f"Ignoring the index {path}, which cannot be read: {error_reason(error)[:200]}")
    return None


def write_index(paths: Sequence[Path], arrays: Arrays, log: Callable[[str], None], file_format: int = FORMAT) -> None:
    """Write the arrays to the first of the files that can be written. Logs where it is, or why there is none."""
    problems = []
    for path in paths:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path, writer=secrets.token_hex(4)) as partial:  # runs can start at the same time
                np.savez_compressed(partial, format=np.array(file_format), **dict(arrays))
        except OSError as error:
            problems.append(f"{path}: {error_reason(error)}")
            continue
        log(f"The index for later starts is {path}")
        return
    log(f"No index for later starts, because it cannot be written ({'; '.join(problems)})")


def modification_time(status: os.stat_result) -> int:
    """The modification time in nanoseconds; NEVER, which equals no time, if a change in the same moment is possible."""
    return status.st_mtime_ns if status.st_mtime_ns < time.time_ns() - RECENT_NANOSECONDS else NEVER


def pack_strings(strings: Sequence[str]) -> npt.NDArray[np.uint8]:
    """File names as one array. No file name contains the separator."""
    return np.frombuffer(os.fsencode("\0".join(strings)), np.uint8)


def unpack_strings(array: npt.NDArray[np.uint8], count: int) -> list[str]:
    """The strings of `pack_strings`. Raises ValueError if their number is different."""
    strings = os.fsdecode(array.tobytes()).split("\0") if count else []
    if len(strings) != count:
        raise ValueError(f"it contains {len(strings)} names instead of {count}")
    return strings
