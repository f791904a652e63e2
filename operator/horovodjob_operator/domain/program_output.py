"""The last output of a program that failed: its lines as a terminal shows them, and the one that says why. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence

MAX_SENTENCE_CHARACTERS = 300
# With --tag-output, Open MPI 4 writes `[1,0]<stderr>:` before each line, and Open MPI 5 a blank after it.
TAG = re.compile(r"^\[\d+,\d+\]<(?:stdout|stderr|stddiag)>: ?")
# Open MPI writes its own messages between lines of dashes.
RULE = re.compile(r"^-{20,}$")
END_OF_A_RANK = re.compile(
    r"^Primary job|^(mpirun|prterun)( has)? (detected|exited)|^(mpirun|prterun) noticed that process"
)
# This repeats that a rank has failed. The others name the rank, and its exit code or signal.
REPETITION = re.compile(r"^Primary job")
# What a shell writes of ranks that mpirun ends.
END_BY_SIGNAL = re.compile(r"^(Terminated|Killed|Hangup)$")
ERROR = re.compile(
    r"^(?:[A-Za-z_][\w.]*)?(?:Error|Exception|Interrupt|Failure)\b|^horovodjob_trainer: |^[\w./ -]*\berror: "
)
# Python says so of errors in finalizers, which follow the one that ended the program.
IGNORED = re.compile(r"^Exception ignored (?:in|while)\b")
# The frame that Python draws around the errors of an exception group.
GROUP = re.compile(r"^ *\+ Exception Group\b")
FRAME = re.compile(r"^ *(?:\| ?|\+[-+ 0-9.]*$|\+ Exception Group *)")
DEADLINE = "horovodjob: ProgressDeadlineExceeded: "
LAST_STEP = re.compile(r"without a (?:(first step)|step after step (\d+))$")
TRACEBACK = re.compile(r"(?<!^)((?:\[\d+,\d+\]<stderr>: ?)?Traceback \(most recent call last\):)", re.MULTILINE)
# What CUDA, the driver and NCCL write of a device that has failed; other errors of CUDA are mostly those of a program.
GPU_ERROR = re.compile(
    r"\bXid\b|GPU is lost|fallen off the bus|[Uu]ncorrectable ECC|CUDA_ERROR_(?:ECC_UNCORRECTABLE|NO_DEVICE"
    r"|NVLINK_UNCORRECTABLE|HARDWARE_STACK_ERROR|DEVICE_UNAVAILABLE|SYSTEM_NOT_READY)|no CUDA-capable device"
)
# Open MPI names the rank that failed first: of a non-zero exit code, or of a signal.
FAILED_RANK = re.compile(r"Process name: (?:\[\[\d+,\d+\],(\d+)\]|\[[^]]*,(\d+)\])|process rank (\d+) ")
# The bars of Keras and of tqdm.
BAR = re.compile(r"[\u2501\u2588]|\d%\|")


def progress_deadline(text: str) -> str:
    """What the watch of rank 0 wrote before it ended an attempt that made no progress; empty if it did not."""
    lines = (TAG.sub("", line).strip() for line in text.splitlines())
    return next((line.removeprefix(DEADLINE) for line in lines if line.startswith(DEADLINE)), "")


def steps_of_deadline(sentence: str) -> int | None:
    """The number of the last step that such a sentence names; 0 if it says that there was none, None if neither."""
    found = LAST_STEP.search(sentence)
    return None if found is None else 0 if found[1] else int(found[2])


def rank_with_gpu_error(text: str) -> int | None:
    """The rank that failed first, if the output has an error of a GPU."""
    found = FAILED_RANK.search(text) if GPU_ERROR.search(text) else None
    return int(next(number for number in found.groups() if number)) if found else None


def failure_lines(text: str) -> str:
    """The output without bars and without what mpirun says twice, or all of it if there is nothing else.

    What a shell writes of a rank that was ended by a signal is never a part: it does not say more than the exit code,
    and mpirun can end without its own sentence about the rank.
    """
    lines = [line for line in _rows(text) if not END_BY_SIGNAL.match(TAG.sub("", line).strip())]
    own = [line for line in _without_blocks(lines, REPETITION) if not BAR.search(line)]
    return "\n".join(own if any(line.strip() for line in own) else lines).strip()


def program_sentence(text: str, *, is_killed: bool = False) -> str:
    """The line in which the program says why it failed, else its last line; empty if it wrote none.

    The last lines of several ranks can be mixed, so the last error counts and not the last line. A program that is
    killed by a signal has not said why, unless it wrote an error.
    """
    lines = [TAG.sub("", line) for line in _without_blocks(_rows(text), END_OF_A_RANK)]
    if any(map(GROUP.match, lines)):
        lines = [FRAME.sub("", line) for line in lines]
    words = [line for line in lines if line.strip() and not BAR.search(line) and not END_BY_SIGNAL.match(line.strip())]
    errors = [*_errors(words)]
    found = errors[-1] if errors else words[-1].strip() if words and not is_killed else ""
    found = found.removeprefix("horovodjob_trainer: ")
    return (
        found
        if len(found) <= MAX_SENTENCE_CHARACTERS
        else f"{found[: MAX_SENTENCE_CHARACTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
    )


def _errors(lines: Iterable[str]) -> Iterator[str]:
    """The lines that end a traceback, or have the form of an error; without those that Python ignored."""
    is_traceback = is_ignored = False
    for line in lines:
        if IGNORED.match(line):
            is_ignored = True
        elif "Traceback (most recent call last):" in line:
            is_traceback = True
        elif not (line[0].isspace() and (is_traceback or is_ignored)):
            if not is_ignored and (is_traceback or ERROR.match(line.strip())):
                yield line.strip()
            is_traceback = is_ignored = False


def _rows(text: str) -> list[str]:
    """The rows that a terminal shows; a traceback begins a row, also behind a bar that has no end."""
    from horovodjob.terminal import rows  # only jobs that fail need the emulation of a terminal in memory

    return TRACEBACK.sub(r"\n\1", "\n".join(rows(text))).split("\n")


def _without_blocks(lines: Sequence[str], beginning: re.Pattern[str]) -> Iterator[str]:
    """The lines without those blocks of mpirun that have a line which begins so."""
    index = 0
    while index < len(lines):
        end = next((each for each in range(index + 1, len(lines)) if RULE.match(lines[each])), len(lines) - 1)
        if RULE.match(lines[index]) and any(beginning.search(line) for line in lines[index + 1 : end]):
            index = end + 1
        else:
            yield lines[index]
            index += 1
