"""Scripts with fit or a loop of their own continue exactly where they were interrupted, and refuse a wrong use."""

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from trainer.support.background_job import JOB, Job, stopped_step
from trainer.support.interruptions import SHARED, killed_at

PROGRAMS = Path(__file__).parent / "programs"
EXAMPLES, EPOCHS, BATCH = 90, 3, 5
FORMS = {"fit": 2, "loop": 1}  # and the numbers of ranks


@pytest.fixture(scope="module")
def script(preloaded_python: list[str]) -> Callable[[Path, str], list[str]]:
    """The command line of the resumable script."""
    return lambda directory, form: [*preloaded_python, str(PROGRAMS / "resumable_script.py"), str(directory), form]


@pytest.fixture(scope="module")
def ended(run: Callable[..., Any], script: Callable[..., list[str]]) -> Callable[..., Any]:
    """Runs the resumable script on this number of ranks; the variables are those of `interruptions`."""
    return lambda ranks, directory, form, **variables: run(ranks, script(directory, form), SHARED | variables)


@pytest.fixture(scope="module")
def whole(ended: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The results of each form without an interruption."""
    runs = {form: ended(ranks, tmp_path_factory.mktemp(form), form) for form, ranks in FORMS.items()}
    return {form: results(run, FORMS[form]) for form, run in runs.items()}


def results(ended: Any, ranks: int) -> list[str]:
    """The fingerprint of the variables of each rank."""
    assert ended.code == 0, ended.stderr
    found = dict(re.findall(r"RANK ([0-9]+) RESULT (\w+)", ended.stdout))
    return [found[str(rank)] for rank in range(ranks)]


def test_a_script_with_fit_ends_with_the_same_bits_after_a_full_disk_and_kills(
    ended: Callable[..., Any], whole: dict[str, list[str]], tmp_path: Path
) -> None:
    full = ended(2, tmp_path, "fit", MAX_FILE_BYTES="4000", FAILURE_SECONDS="1")
    assert full.code == 1
    # Open MPI can end a rank before it has printed the reason, which is that of all ranks.
    errors = re.findall("JobError: (.*)", full.stderr)
    reason = r".*: File too large; no write has succeeded for .* \(failure_seconds\); free space or repair its volume"
    assert errors
    assert [each for each in errors if not re.match(reason, each)] == []

    batches = tmp_path / "batches-0"
    batches.unlink()
    last = killed_at(partial(ended, 2, tmp_path, "fit"), "validation 1", f"replace checkpoint-{EPOCHS}.h5 2")
    assert results(last, 2) == whole["fit"] == whole["fit"][:1] * 2
    assert f"Resuming the run in {tmp_path} after epoch {EPOCHS}\n" in last.stdout
    # The callbacks see the steps that are left with their numbers.
    first, *others = map(int, batches.read_text().split())
    steps = EXAMPLES // 2 // BATCH
    assert first in (2, 4, 6)
    assert others == [*range(first + 1, steps), *range(steps), *range(steps)]
    records = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert {each["epoch"] for each in records if "val_loss" in each["metrics"]} == set(range(1, EPOCHS + 1))
    other = ended(1, tmp_path, "fit")
    assert other.code == 1
    assert "It cannot continue with another number of ranks or number of steps per epoch: " in other.stderr


@pytest.mark.parametrize("form", ["examples", "loop"])
def test_a_script_stops_on_sigterm_and_continues_on_another_number_of_ranks(
    ended: Callable[..., Any], form: str, tmp_path: Path
) -> None:
    stopped = ended(2, tmp_path, form, INTERRUPT="SIGTERM step 4", INTERRUPT_RANK="1")
    assert stopped.code == 143, stopped.stderr
    assert results(ended(1, tmp_path, form), 1)
    lines = [line.split() for path in tmp_path.glob("taken-*") for line in path.read_text().splitlines()]
    # Each position of the three passes is read by one rank in one step, in whichever start.
    stop, end = stopped_step(stopped.stdout), max(int(step) for step, _ in lines) + 1
    assert {int(step) for step, _ in lines} == set(range(end))
    taken = Counter(int(number) for _, number in lines)
    total = (stop * 2 + end - stop) * BATCH
    assert sum(taken.values()) == total
    assert EPOCHS * EXAMPLES <= total < EPOCHS * EXAMPLES + BATCH
    assert set(taken.values()) <= {EPOCHS, EPOCHS + 1}


def test_a_later_start_of_a_loop_owns_the_directory_and_the_earlier_one_ends(
    start: Callable[..., Job], script: Any, whole: dict[str, list[str]], tmp_path: Path
) -> None:
    def held(name: str, **variables: str) -> Job:
        job = start(script(tmp_path, "loop"), 1, {**SHARED, **JOB, "HOLD": name, **variables})
        job.wait_for(f"{name}-holds")
        return job

    earlier, later = held("earlier"), held("later", HOROVODJOB_ATTEMPT="2")
    (tmp_path / "earlier-released").touch()
    code, output = earlier.ended()
    assert code == 1, output
    assert re.search(
        r"JobError: (attempt 2 of the job training/mnist started later|.*is missing, because a run)", output
    )
    (tmp_path / "later-released").touch()
    code, output = later.ended()
    assert code == 0, output
    assert whole["loop"][0] in output


REFUSALS = {
    "no init": r"RuntimeError: call hvd.init\(\) before the run begins",
    "resume": "ValueError: resume of a run must be auto, continue or never, not always",
    "first": "2 epochs",
    "again": "0 epochs",
    "changed model": "JobError: no checkpoint of the unfinished run in .* can be used, such as checkpoint-.*: it "
    r"belongs to a different network or optimizer: .*kernel has the shape \(3, 5\) and in the run \(3, 4\); .* or use "
    'resume="never" for a new run, which keeps its checkpoints',
    "changed setting": "JobError: the unfinished run in .* has different settings: rate was 1 and is 2. It does not "
    'start from the beginning: use resume="continue" .*',
    "arrays": "ValueError: data of the type ndarray has no position from which a run can continue: pass .*",
    "unknown length": "ValueError: the dataset has an unknown number of batches, so the run needs steps_per_epoch",
    "other length": "ValueError: the dataset has 4 batches, and steps_per_epoch is 3: omit steps_per_epoch, or .*",
    "not built": "ValueError: the model of a run must be built: add an Input, or call the model with a batch",
    "not writable": "JobError: cannot write to .*/file: .*; use another directory",
    "another program": "JobError: .*/trained contains the unfinished run of another program: use another directory, or "
    'resume="never" .*',
    "never": "1 epochs",
}


def test_a_wrong_use_ends_with_one_sentence_and_loses_no_run(
    run: Callable[..., Any], preloaded_python: list[str], tmp_path: Path
) -> None:
    ended = run(1, [*preloaded_python, str(PROGRAMS / "refused_runs.py"), str(tmp_path)])
    assert ended.code == 0, ended.stderr
    found = dict(re.findall(rf"^({'|'.join(REFUSALS)}): (.*)$", ended.stdout, re.MULTILINE))
    assert [(name, found.get(name)) for name, text in REFUSALS.items() if not re.fullmatch(text, found[name])] == []
    assert "earlier runs: 1\n" in ended.stdout
