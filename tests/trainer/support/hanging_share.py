"""A share that does not respond: a filesystem in user space (FUSE) whose server answers no request after its mount.

Calls to it wait in the kernel, as those to a share of BlobFuse whose server hangs. Only root can mount it.
"""

import ctypes
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

INIT, MAX_REQUEST, MNT_DETACH = 26, 1 << 17, 2
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def hanging_share(directory: Path) -> Iterator[None]:
    """Within this context, calls with files in the directory do not return; after it, they have failed."""
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0"
    if _libc.mount(b"hanging", bytes(directory), b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), f"cannot mount a share at {directory}")
    answer = threading.Thread(target=_answer_mount, args=(device,))
    answer.start()
    answer.join()
    try:
        yield
    finally:
        os.close(device)  # fails the calls that wait
        _libc.umount2(bytes(directory), MNT_DETACH)


def _answer_mount(device: int) -> None:
    """Agree to the newest version of the protocol, with sizes of one page and without options."""
    with suppress(OSError):
        request = os.read(device, MAX_REQUEST)
        _, operation, number = struct.unpack("<IIQ", request[:16])
        assert operation == INIT
        read_ahead = struct.unpack("<IIII", request[40:56])[2]
        answer = struct.pack("<IIIIHHII32x", 7, 31, read_ahead, 0, 12, 10, 4096, 1)
        os.write(device, struct.pack("<IiQ", 16 + len(answer), 0, number) + answer)
