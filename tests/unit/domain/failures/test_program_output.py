"""The last output of a program: what a terminal shows of it, and the sentence that says why the program failed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovodjob_operator.domain.program_output import failure_lines, program_sentence

RULE = "-" * 74
OPEN_MPI_4 = f"""{RULE}
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
{RULE}
{RULE}
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[11111,1],1]
  Exit code:    1
{RULE}
"""
OPEN_MPI_5 = f"""{RULE}
prterun detected that one or more processes exited with non-zero status,
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-host-1@1,0] Exit code:    1
{RULE}
"""
TRACEBACK = """Traceback (most recent call last):
  File "/tmp/fail.py", line 8, in <module>
    raise ValueError("bad shape")
ValueError: bad shape (3, 4)
"""
IGNORED = """Exception ignored in: <function AtomicFunction.__del__ at 0x7f>
Traceback (most recent call last):
  File "/usr/lib/atomic_function.py", line 291, in __del__
TypeError: 'NoneType' object is not subscriptable
"""
EXCEPTION_GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/tmp/fail.py", line 3, in <module>
  |     raise ExceptionGroup("both", errors)
  | ExceptionGroup: both (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: one
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "/tmp/fail.py", line 1, in <module>
    | TypeError: two
    +------------------------------------
"""
KERAS_BAR = "\x1b[1m 5/10\x1b[0m \x1b[32m\u2501\u2501\u2501\x1b[0m \x1b[1m1s\x1b[0m 9ms/step - loss: 0.5"
TQDM_BAR = "\r 40%|####      | 4/10"
KILLED = f"""{RULE}
mpirun noticed that process rank 1 with PID 0 on node gpu-3 exited on signal 9 (Killed).
{RULE}
"""
NOT_ENOUGH_SLOTS = f"""{RULE}
There are not enough slots available in the system to satisfy the 9
slots that were requested by the application:
{RULE}
"""


@pytest.mark.parametrize("mpirun", [OPEN_MPI_4, OPEN_MPI_5])
@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        (TRACEBACK, "ValueError: bad shape (3, 4)"),
        (50 * TQDM_BAR + TRACEBACK, "ValueError: bad shape (3, 4)"),
        (TRACEBACK + 50 * f"\r{KERAS_BAR}", "ValueError: bad shape (3, 4)"),
        ("".join(f"[1,1]<stderr>:{line}\n" for line in TRACEBACK.splitlines()), "ValueError: bad shape (3, 4)"),
        ("horovodjob_trainer: the loss is not a number since step 2\n", "the loss is not a number since step 2"),
        (TRACEBACK.replace("ValueError", "data.Empty") + IGNORED + "rank 1 ends\n", "data.Empty: bad shape (3, 4)"),
        (EXCEPTION_GROUP, "TypeError: two"),
        ("| Error | 3 |\n", "| Error | 3 |"),
        ("  layers:\nloss: 3\nno such data set\n", "no such data set"),
        ("no such data set\n[1,0]<stderr>:Terminated\n", "no such data set"),
        (TRACEBACK.replace("ValueError: bad shape (3, 4)", "KeyboardInterrupt"), "KeyboardInterrupt"),
        ("./solve: error: no input file\n", "./solve: error: no input file"),
        ("[1,0]<stderr>:Terminated\n", ""),
        ("[1,1]<stderr>:Killed\n", ""),
        ("tensorflow.python.framework.errors_impl.NotFoundError: x\nmore\n",
         "tensorflow.python.framework.errors_impl.NotFoundError: x"),
        (f"\r{KERAS_BAR}", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_the_sentence_is_the_error_of_the_program_and_no_bar_or_message_of_mpirun(
    output: str, sentence: str, mpirun: str
) -> None:
    assert program_sentence(f"{output}\n{mpirun}") == sentence


def test_the_lines_of_a_failure_have_what_only_mpirun_says_and_not_what_it_repeats() -> None:
    shown = failure_lines(f"{TRACEBACK}{OPEN_MPI_4}")
    assert shown.startswith(TRACEBACK.strip())
    assert ("Primary job" in shown, "Exit code:    1" in shown) == (False, True)
    assert "not enough slots" in failure_lines(NOT_ENOUGH_SLOTS)
    assert "There are not enough slots" in failure_lines(f"{NOT_ENOUGH_SLOTS}{OPEN_MPI_4}")
    assert "mpirun detected" in failure_lines(OPEN_MPI_4), "there is nothing else"
    assert "process rank 1 with PID 0 on node gpu-3" in failure_lines(f"epoch 3\n{KILLED}")
    assert program_sentence(f"epoch 3\n{KILLED}", is_killed=True) == ""
    assert program_sentence(f"epoch 3\n{TRACEBACK}", is_killed=True) == "ValueError: bad shape (3, 4)"


@pytest.mark.parametrize("bar", [1000 * TQDM_BAR, 40 * f"\r{KERAS_BAR}{60 * chr(8)}"])
def test_a_traceback_behind_a_bar_without_an_end_is_whole(bar: str) -> None:
    assert failure_lines(f"{bar[-2048:]}{TRACEBACK}") == TRACEBACK.strip()
    assert failure_lines(f"{TRACEBACK}{bar[-2048:]}") == TRACEBACK.strip()


@given(
    st.text() | st.lists(st.sampled_from([RULE, "\x1b[", "\r", "\n", TRACEBACK, KERAS_BAR, OPEN_MPI_4])).map("".join)
)
def test_any_output_has_a_sentence_of_one_printable_line(text: str) -> None:
    sentence = program_sentence(text)
    assert len(sentence) <= 300
    assert not {"\n", "\r", "\x1b", "\0"} & set(sentence)
    failure_lines(text)
