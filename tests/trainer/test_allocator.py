"""A training process keeps the memory that a step frees, unless its user has set the allocator."""

import os
import subprocess
import sys

import pytest

# As a step of TensorFlow: a thread that is not the first one allocates, fills and frees several tensors, again and
# again. Prints the faults after the first steps.
PROGRAM = """
import resource, threading
from horovodjob_trainer.allocator import keep_freed_memory

def step():
    tensors = [bytearray(b"1") * 6_000_000 for _ in range(8)]

def steps():
    for number in range(60):
        if number == 10:
            begin = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begin)

keep_freed_memory()
thread = threading.Thread(target=steps)
thread.start()
thread.join()
"""
PAGES_OF_A_STEP = 8 * 6_000_000 // os.sysconf("SC_PAGE_SIZE")


def faults(**environment: str) -> int:
    """The pages that the kernel gave to the process in fifty steps."""
    command = [sys.executable, "-c", PROGRAM]
    return int(subprocess.run(command, env=os.environ | environment, stdout=subprocess.PIPE, check=True).stdout)


def test_a_step_gets_the_memory_of_the_step_before() -> None:
    assert faults() < 5 * PAGES_OF_A_STEP


@pytest.mark.parametrize("name", ["MALLOC_TOP_PAD_", "GLIBC_TUNABLES"])
def test_settings_of_the_user_stay(name: str) -> None:
    value = {"MALLOC_TOP_PAD_": "4096", "GLIBC_TUNABLES": "glibc.malloc.top_pad=4096"}[name]
    assert faults(**{name: value}) > 20 * PAGES_OF_A_STEP
