"""Scripts with fit or a loop of their own continue exactly where they were interrupted, and refuse a wrong use."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"
EXAMPLES, EPOCHS, BATCH = 90, 3, 5


@pytest.fixture
def script(run: Callable[..., Any], preloaded_python: list[str]) -> Callable[..., Any]:
    """Runs the resumable script on this number of ranks; a signal ends it in one of its steps."""

    def ended(ranks: int, directory: Path, form: str, signal: str = "", step: int = 0) -> Any:
        variables = {"SIGNAL": signal, "SIGNAL_STEP": str(step)}
        return run(ranks, [*preloaded_python, str(PROGRAMS / "resumable_script.py"), str(directory), form], variables)

    return ended


def results(ended: Any, ranks: int) -> list[str]:
    """The fingerprint of the variables of each rank."""
    assert ended.code == 0, ended.stderr
    found = dict(re.findall(r"RANK ([0-9]+) STEPS .* RESULT (\w+)", ended.stdout))
    return [found[str(rank)] for rank in range(ranks)]


def resumed_step(ended: Any) -> tuple[int, int]:
    """The completed epochs and the steps in the next one after which the script has continued."""
    (epoch, step), = re.findall(r"^Resuming the run in .* after epoch ([0-9]+)(?: and ([0-9]+) steps?)?$",
                                ended.stdout, re.MULTILINE)  # fmt: skip
    return int(epoch), int(step or 0)


def test_fit_that_is_killed_in_an_epoch_ends_with_the_same_bits(script: Callable[..., Any], tmp_path: Path) -> None:
    expected = results(script(2, tmp_path / "whole", "fit"), 2)
    assert expected[0] == expected[1]
    killed = script(2, tmp_path / "killed", "fit", "SIGKILL", 16)
    assert killed.code != 0
    resumed = script(2, tmp_path / "killed", "fit")
    assert results(resumed, 2) == expected
    epoch, step = resumed_step(resumed)
    assert (epoch, step) != (0, 0)
    # A callback sees the steps of the epoch with their numbers, without those before.
    first = EXAMPLES // 2 // BATCH if step == 0 else step
    assert re.search(rf"RANK 0 STEPS \[{0 if step == 0 else first}, ", resumed.stdout)
    other = script(1, tmp_path / "killed", "fit")
    assert other.code == 1
    assert "It cannot continue with another number of ranks or number of steps per epoch: " in other.stderr


def test_a_loop_stops_on_sigterm_and_continues_on_two_three_and_one_ranks(
    script: Callable[..., Any], tmp_path: Path
) -> None:
    stops = []
    for ranks in (2, 3):
        ended = script(ranks, tmp_path, "loop", "SIGTERM", 4)
        assert ended.code == 143, ended.stderr
        (stop,) = re.findall(
            r"^SIGTERM: stopped after step ([0-9]+), from which the next attempt continues", ended.stdout, re.MULTILINE
        )
        stops.append(int(stop))
    ended = script(1, tmp_path, "loop")
    assert results(ended, 1)
    lines = [line.split() for path in tmp_path.glob("taken-*") for line in path.read_text().splitlines()]
    assert stops[0] < stops[1]
    # Each position of the three passes is read by one rank in one step, in whichever start.
    last = max(int(step) for step, _ in lines)
    assert {int(step) for step, _ in lines} == set(range(last + 1))
    taken = Counter(int(number) for _, number in lines)
    total = stops[0] * 2 * BATCH + (stops[1] - stops[0]) * 3 * BATCH + (last + 1 - stops[1]) * BATCH
    assert sum(taken.values()) == total
    assert EPOCHS * EXAMPLES <= total < EPOCHS * EXAMPLES + BATCH
    assert set(taken.values()) <= {EPOCHS, EPOCHS + 1}


def test_a_loop_that_is_killed_in_an_epoch_ends_with_the_same_bits(script: Callable[..., Any], tmp_path: Path) -> None:
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    expected = results(script(1, tmp_path / "whole", "loop"), 1)
    assert script(1, tmp_path / "killed", "loop", "SIGKILL", 27).code != 0
    resumed = script(1, tmp_path / "killed", "loop")
    assert results(resumed, 1) == expected
    assert resumed_step(resumed) >= (1, 0)


REFUSALS = {
    "no init": r"RuntimeError: call hvd.init\(\) before the run begins",
    "every_steps": "ValueError: every_steps of a run must be at least 1, not 0",
    "resume": "ValueError: resume of a run must be auto, continue or never, not always",
    "first": "2 epochs",
    "again": "0 epochs",
    "longer": "1 epochs",
    "changed model": "JobError: no checkpoint of the unfinished run in .* can be used, such as checkpoint-.*: it "
    'belongs to a different network or optimizer; .* or use resume="never" for a new run, which keeps its checkpoints',
    "changed setting": "JobError: the unfinished run in .* has different settings: rate was 1 and is 2. It does not "
    'start from the beginning: use resume="continue" .*',
    "changed data": "JobError: .*number of steps per epoch was 4 and is 3. It cannot continue with another number of "
    "steps per epoch: .*",
    "arrays": "ValueError: data of the type ndarray has no position from which a run can continue: pass .*",
    "generator": "ValueError: data of the type generator has no position from which a run can continue: pass .*",
    "unknown length": "ValueError: the dataset has an unknown number of batches, so the run needs steps_per_epoch",
    "infinite": "ValueError: the dataset is infinite, so the run needs steps_per_epoch",
    "other length": "ValueError: the dataset has 4 batches, and steps_per_epoch is 3: omit steps_per_epoch, or .*",
    "not built": "ValueError: the model of a run must be built: add an Input, or call the model with a batch",
    "not writable": "JobError: cannot write to .*/file: .*; use another directory",
    "another program": "JobError: .*/trained contains the unfinished run of another program: use another directory, or "
    'resume="never" .*',
    "never": "1 epochs",
    "run over": "1 epochs",
}


def test_a_wrong_use_ends_with_one_sentence_and_loses_no_run(
    run: Callable[..., Any], preloaded_python: list[str], tmp_path: Path
) -> None:
    ended = run(1, [*preloaded_python, str(PROGRAMS / "refused_runs.py"), str(tmp_path)])
    assert ended.code == 0, ended.stderr
    found = dict(re.findall(rf"^({'|'.join(REFUSALS)}): (.*)$", ended.stdout, re.MULTILINE))
    assert [(name, found.get(name)) for name, text in REFUSALS.items() if not re.fullmatch(text, found[name])] == []
    assert "earlier runs: 1\n" in ended.stdout
