"""The index of a TFRecord file: the offsets of its records, computed without reading them."""

import os
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from horovodjob_trainer.data.download import error_reason
from horovodjob_trainer.errors import DataError

HEADER_BYTES, FOOTER_BYTES = 12, 4  # length with its checksum; checksum of the content
GZIP, ZLIB = b"\x1f\x8b", (b"\x78\x01", b"\x78\x9c", b"\x78\xda")


def record_offsets(path: Path) -> npt.NDArray[np.int64]:
    """Offset of each record. Raises DataError for a file that is truncated, damaged or compressed."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error_reason(error)}; give the job permission to read it") from error
    try:
        size = os.fstat(file).st_size
        offsets: list[int] = []
        offset = 0
        while offset < size:
            length = _length(os.pread(file, HEADER_BYTES, offset))
            end = offset + HEADER_BYTES + length + FOOTER_BYTES if length is not None else size + 1
            if end > size:
                raise DataError(_format_error(path, os.pread(file, 2, 0), record=len(offsets), offset=offset))
            offsets.append(offset)
            offset = end
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error_reason(error)}; check the share") from error
    finally:
        os.close(file)
    return np.array(offsets, dtype=np.int64)


def _format_error(path: Path, start: bytes, *, record: int, offset: int) -> str:
    if record == 0 and (start == GZIP or start in ZLIB):
        return f"{path} is compressed, which prevents random access; decompress it or write it without compression"
    return f"{path} is truncated or damaged in record {record}, at byte {offset}; copy or write it again"


def _length(header: bytes) -> int | None:
    """Length of the record, or None if its checksum is wrong."""
    if len(header) < HEADER_BYTES:
        return None
    length, checksum = struct.unpack("<QI", header)
    return int(length) if _masked_crc32c(header[:8]) == checksum else None


def _masked_crc32c(content: bytes) -> int:
    """The checksum of TFRecord files: CRC-32C, rotated and increased by a constant."""
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
