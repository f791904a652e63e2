"""Where the records of a TFRecord file begin, found without reading them."""

import os
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from horovodjob_trainer.data.download import reason
from horovodjob_trainer.errors import DataError

HEADER_BYTES, FOOTER_BYTES = 12, 4  # length and its checksum; checksum of the content
GZIP, ZLIB = b"\x1f\x8b", (b"\x78\x01", b"\x78\x9c", b"\x78\xda")


def record_offsets(path: Path) -> npt.NDArray[np.int64]:
    """First byte of each record. Raises DataError for a file that is cut off, damaged or compressed."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {reason(error)}; give the job the right to read it") from error
    try:
        size = os.fstat(file).st_size
        offsets: list[int] = []
        at = 0
        while at < size:
            length = _length(os.pread(file, HEADER_BYTES, at))
            end = at + HEADER_BYTES + length + FOOTER_BYTES if length is not None else size + 1
            if end > size:
                raise DataError(_trouble(path, os.pread(file, 2, 0), record=len(offsets), at=at))
            offsets.append(at)
            at = end
    except OSError as error:
        raise DataError(f"{path} cannot be read: {reason(error)}; look at the share") from error
    finally:
        os.close(file)
    return np.array(offsets, dtype=np.int64)


def _trouble(path: Path, start: bytes, *, record: int, at: int) -> str:
    if record == 0 and (start == GZIP or start in ZLIB):
        return f"{path} is compressed, so that no record can be read alone; unpack it or write it without compression"
    return f"{path} is cut off or damaged in record {record}, at byte {at}; copy or write it again"


def _length(header: bytes) -> int | None:
    """The record's length, if its checksum is right."""
    if len(header) < HEADER_BYTES:
        return None
    length, checksum = struct.unpack("<QI", header)
    return int(length) if _masked_crc32c(header[:8]) == checksum else None


def _masked_crc32c(content: bytes) -> int:
    """The checksum of TFRecord files: Castagnoli's CRC, rotated and moved so that a checksum of it is no weak one."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


_TABLE = _table()
