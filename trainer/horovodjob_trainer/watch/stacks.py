"""Python stacks of the ranks, from a signal that also reaches a rank in C code or in an endless loop.

`python3 -m horovodjob_trainer.watch.stacks [RANK ...]` prints those of the ranks in its pod.
"""

import faulthandler
import os
import re
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

SIGNAL = signal.SIGRTMIN + 13
FILE = "horovodjob-stacks"
MAX_BYTES = 1 << 16
WAIT_SECONDS = 3.0
KERNEL_SECONDS = 0.2
RANK = re.compile(rb"(?:^|\0)(?:OMPI_COMM_WORLD_RANK|PMI_RANK|HOROVOD_RANK)=(\d+)")
# System calls of x86-64 by number. With a file: read, write, fstat, lseek, pread, pwrite, readv, writev, fcntl, flock,
# fsync, fdatasync, ftruncate, getdents, fallocate. With a path, and which argument it is: open, stat, lstat, access,
# truncate, rename, mkdir, rmdir, unlink, statfs, openat, mkdirat, newfstatat, unlinkat, renameat, renameat2, statx,
# faccessat2.
DESCRIPTOR_CALLS = (0, 1, 5, 8, 17, 18, 19, 20, 72, 73, 74, 75, 77, 217, 285)
PATH_CALLS = {2: 0, 4: 0, 6: 0, 21: 0, 76: 0, 82: 0, 83: 0, 84: 0, 87: 0, 137: 0,
              257: 1, 258: 1, 262: 1, 263: 1, 264: 1, 316: 1, 332: 1, 439: 1}  # fmt: skip
MAX_PATH = 256
FUSE_WAIT = "request_wait_answer"  # a call to a share in user space can be interrupted, which no library does
WITH = ", with "
FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')
OUTERMOST = re.compile(r" in (<module>|_run_module_as_main)\n$")
# The code of a program begins outside of these.
LIBRARIES = re.compile(r"/(site-packages|dist-packages|lib/python3[.\d]*)/|^<|/horovodjob_trainer/")


def register_stacks() -> int:
    """Let the signal write the stacks of all threads to a file in memory. Returns its descriptor."""
    descriptor = os.memfd_create(FILE, 0)
    faulthandler.register(SIGNAL, file=descriptor, all_threads=True)
    return descriptor


def dump(pid: int, file: int) -> str:
    """The stacks of a process that has registered this file; empty if it cannot run."""
    os.ftruncate(file, 0)
    os.lseek(file, 0, os.SEEK_SET)
    os.kill(pid, SIGNAL)
    end, text = time.monotonic() + WAIT_SECONDS, ""
    # The main thread is the last one, and its outermost frame the last line. On a busy node the lines come one by one.
    while not OUTERMOST.search(text) and time.monotonic() < end:
        time.sleep(0.05)
        if (written := os.pread(file, MAX_BYTES, 0).decode(errors="replace")) != text:
            text, end = written, time.monotonic() + WAIT_SECONDS
    # Without the numbers of threads, and the one that has received the signal, ranks at a place have the same text.
    return re.sub("(?:Current t|T)hread 0x[0-9a-f]+ ", "Thread ", text)


def main_thread(stacks: str) -> list[str]:
    """The lines of the main thread, which is the last one, innermost frame first."""
    parts = re.split(r"^(?:Current thread|Thread) .*\n", stacks, flags=re.MULTILINE)
    return [line for line in parts[-1].splitlines() if FRAME.match(line)]


def program_frame(frames: Sequence[str]) -> str:
    """The innermost frame that belongs to the program and to no library, such as `load in train.py:31`."""
    for line in frames:
        found = FRAME.match(line)
        if found and not LIBRARIES.search(found[1]):
            return f"{found[3]} in {Path(found[1]).name}:{found[2]}"
    return ""


def grouped(stacks: Mapping[int, str]) -> str:
    """The main threads of the ranks, with those that are at the same place in one group."""
    groups: dict[str, list[int]] = {}
    for rank, text in sorted(stacks.items()):
        groups.setdefault("\n".join(main_thread(text)) or text.strip() or "  no stack", []).append(rank)
    return "\n".join(
        f"{ranks_text(ranks)}{f' ({len(ranks)} ranks)' if len(ranks) > 1 else ''}, innermost frame first:\n{frames}"
        for frames, ranks in sorted(groups.items(), key=lambda group: len(group[1]))
    )


def ranks_text(ranks: Iterable[int]) -> str:
    """Numbers of ranks as `rank 3` or `ranks 0-2, 5`."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and parts[-1][-1] == rank - 1:
            parts[-1][1:] = [rank]
        else:
            parts.append([rank])
    words = ", ".join("-".join(map(str, part)) for part in parts)
    return f"rank{'s' if len(parts) > 1 or '-' in words else ''} {words}"


def process_state(pid: int) -> str:
    """How the kernel sees a process that cannot run; else empty."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return "has ended"
    state = next((line.split()[1] for line in status.splitlines() if line.startswith("State:")), "")
    if state in ("T", "t"):
        return "is stopped"
    if state in ("Z", "X"):
        return "has ended"
    return ""


def kernel_wait(pid: int) -> str:
    """The call of a thread that does not return; else empty. One that names a file says most."""
    before = _kernel_waits(pid)
    if not before:
        return ""
    # A healthy thread is in such a call for moments only. A thread that has not run meanwhile waits.
    time.sleep(KERNEL_SECONDS)
    after = _kernel_waits(pid)
    waits = [text for thread, (switches, text) in after.items() if before.get(thread, (-1, ""))[0] == switches]
    return f"waits in the kernel{max(waits, key=lambda text: WITH in text)}" if waits else ""


class KernelCalls:
    """Since when the threads of a process wait in the same calls of the kernel, as far as it was asked."""

    def __init__(self, pid: int) -> None:
        self.pid, self._seen = pid, dict[str, tuple[int, float]]()

    def seconds(self) -> float:
        """How long ago the oldest call that has not returned was seen first."""
        now, before = time.monotonic(), self._seen
        # A thread that has run meanwhile waits in another call.
        self._seen = {
            thread: (switches, before[thread][1] if before.get(thread, (-1, now))[0] == switches else now)
            for thread, (switches, _) in _kernel_waits(self.pid).items()
        }
        return max((now - since for _, since in self._seen.values()), default=0.0)


def _kernel_waits(pid: int) -> dict[str, tuple[int, str]]:
    """The threads that wait in the kernel: how often each has stopped to run, and what it waits for."""
    found = {thread.name: (_switches(thread), _kernel_wait(thread)) for thread in _threads(pid)}
    return {thread: wait for thread, wait in found.items() if wait[1]}


def _switches(thread: Path) -> int:
    try:
        return sum(map(int, re.findall(r"ctxt_switches:\s+(\d+)", (thread / "status").read_text())))
    except OSError:
        return -1


def _threads(pid: int) -> list[Path]:
    try:
        return sorted(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def _kernel_wait(thread: Path) -> str:
    """What a thread waits for that is in a call which cannot be interrupted, such as that of a file on a share."""
    try:
        state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
        function = (thread / "wchan").read_text().strip("0\n") if state in "DS" else ""
    except OSError:
        return ""
    if state != "D" and function != FUSE_WAIT:
        return ""
    file = _file_of_call(thread)
    return (f" ({function})" if function else " (state D)") + (f"{WITH}{file}" if file else "")


def _file_of_call(thread: Path) -> str:
    """The file of the system call that a thread is in, if it is one that opens, reads or writes a file."""
    process = thread.parent.parent
    try:
        number, *arguments = (int(each, 0) for each in (thread / "syscall").read_text().split()[:3])
        if number in DESCRIPTOR_CALLS:
            return os.readlink(process / "fd" / str(arguments[0]))
        if number in PATH_CALLS:
            with (process / "mem").open("rb", buffering=0) as memory:
                memory.seek(arguments[PATH_CALLS[number]])
                return memory.read(MAX_PATH).partition(b"\0")[0].decode(errors="replace")
    except (OSError, ValueError, OverflowError):
        return ""
    return ""


def ranks_of_pod() -> dict[int, tuple[int, Path]]:
    """The ranks that run here and have registered their stacks: by their number, the process and the file."""
    found: dict[int, tuple[int, Path]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            rank = RANK.search((process / "environ").read_bytes())
            files = [each for each in (process / "fd").iterdir() if FILE in os.readlink(each)]
            is_watch = b"horovodjob_trainer.reporting.watch_process" in (process / "cmdline").read_bytes()
        except OSError:
            continue
        if files and not is_watch:
            found[int(rank[1]) if rank else 0] = int(process.name), files[0]
    return found


def main(arguments: Sequence[str]) -> int:
    """Print the stacks of the ranks in this pod, of all or of those that are named."""
    wanted, found = {int(each) for each in arguments}, ranks_of_pod()
    for rank in sorted(found):
        if wanted and rank not in wanted:
            continue
        pid, path = found[rank]
        file = os.open(path, os.O_RDWR)
        text, state = dump(pid, file), process_state(pid) or kernel_wait(pid)
        title = f"--- rank {rank}, process {pid}{f', {state}' if state else ''}"
        print(f"{title}\n{text.strip() or 'no stack'}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
