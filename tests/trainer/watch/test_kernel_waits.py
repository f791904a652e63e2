"""A share that does not respond: the file that a process waits for is named in each way to use it."""

import subprocess
import sys
import time
from pathlib import Path

from horovodjob_trainer.watch.stacks import kernel_wait
from trainer.support.hanging_share import hanging_share
from trainer.support.waiting import TIMEOUT_SECONDS

CALLS = {
    "create a directory": "os.mkdir(path)",
    "delete": "os.unlink(path)",
    "free space": "os.statvfs(path)",
    "list": "os.scandir(path)",
    "open": "open(path)",
    "rename": "os.replace(path, path + '-2')",
    "status": "os.stat(path)",
}


def test_a_call_that_does_not_return_is_named_with_its_file(tmp_path: Path) -> None:
    """One process for each call, all at the same time."""
    with hanging_share(tmp_path):
        waiting = {
            name: subprocess.Popen([sys.executable, "-c", f"import os; path = {f'{tmp_path}/{number}'!r}; {call}"])
            for number, (name, call) in enumerate(CALLS.items())
        }
        try:
            end = time.monotonic() + TIMEOUT_SECONDS
            for number, process in enumerate(waiting.values()):
                while not (text := kernel_wait(process.pid)).startswith("waits in the kernel"):
                    assert time.monotonic() < end
                assert text.endswith(f", with {tmp_path}/{number}"), (text, list(CALLS)[number])
        finally:
            for process in waiting.values():
                process.kill()
    for process in waiting.values():
        process.wait()
