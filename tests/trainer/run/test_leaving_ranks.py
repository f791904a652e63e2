"""A rank that leaves the steps of a run: the others leave, too, or all end with a sentence that names the rank."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs" / "leaving_ranks.py"
AGREED = {
    "epochs": "JobError: rank 0 has epochs 6 and rank 1 has 7; every step needs all ranks, so give all ranks the same",
    "steps": "JobError: rank 0 has 10 steps per epoch and rank 1 has 8; every step needs all ranks, so give all ranks "
    "the same number of steps",
    "loop steps": "JobError: rank 0 has 10 steps per epoch and rank 1 has 8; every step needs all ranks, so give all "
    "ranks the same number of steps",
    "arrays": "JobError: rank 1 has other arrays in hvd.Examples than rank 0: pass the same ones on all ranks, for "
    "example from sorted lists of files",
    "early": "RuntimeError: EarlyStopping of loss ends the training after epoch 3 on rank 1 and not on rank 0: its "
    "metric differs between the ranks; list hvd.callbacks.MetricAverageCallback() before it",
}
AGREED["early plain"] = AGREED["early"]
STOPPED = {
    "nan": ("TerminateOnNaN ends the training after step 4 of the epoch on rank 1, so it ends on all ranks", None),
    "nan plain": ("TerminateOnNaN ends the training after step 4 of the epoch on rank 1, so it ends on all ranks", 4),
    "limit": ("Limit ends the training after epoch 1 on rank 1 and not on rank 0, so it ends on all ranks", 10),
    "limit plain": ("Limit ends the training after epoch 1 on rank 1 and not on rank 0, so it ends on all ranks", 10),
}
LEFT = {  # by the number of ranks, the one that leaves, and the case
    (2, 1, "callback"): "step 4 of epoch 1: KeyError: 'own mistake'",
    (3, 0, "end"): "the end of the training: KeyError: 'own mistake at the end'",
    (2, 1, "exit plain"): "the end of epoch 1: SystemExit: 0",
    (3, 2, "data"): r"step \d of epoch 1: \w+: .*a damaged file.*",
    (3, 0, "data end plain"): "step 8 of epoch 1, for which its data has no batch",
    (2, 1, "one batch plain"): "step 10 of epoch 1, for which its data has no batch",
    (3, 2, "validation"): "the end of epoch 1: KeyboardInterrupt: ",
    (2, 1, "loop error"): "step 6 of epoch 1, which is not the last one",
    (3, 0, "loop exit"): "step 6 of epoch 1, which is not the last one",
    (3, 2, "loop interrupt"): "step 6 of epoch 1, which is not the last one",
    (3, 0, "loop break"): "step 6 of epoch 1, which is not the last one",
}


@pytest.fixture(scope="module")
def ended(run: Any, preloaded_python: list[str], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    def end(case: str, ranks: int = 2, leaver: int = 1) -> Any:
        return run(ranks, [*preloaded_python, str(PROGRAM), str(tmp_path_factory.mktemp("run")), case, str(leaver)])

    return end


@pytest.mark.parametrize("case", AGREED)
def test_all_ranks_end_with_the_same_sentence(ended: Callable[..., Any], case: str) -> None:
    found = ended(case)
    assert found.code == 1
    assert re.findall(r"ENDED (.*)", found.stdout) == [AGREED[case]] * 2


@pytest.mark.parametrize("case", STOPPED)
def test_all_ranks_end_the_training_that_a_callback_ends_on_one_rank(ended: Callable[..., Any], case: str) -> None:
    found = ended(case)
    sentence, steps = STOPPED[case]
    assert f"Horovod: {sentence}\n" in found.stderr
    if steps is not None:
        assert (found.code, re.findall("STEPS (.*)", found.stdout)) == (0, [str(steps)] * 2)
    else:  # no checkpoint has the weights, which are not numbers
        assert len(re.findall("RANK . ENDED JobError: stopped after step 4, of which", found.stdout)) == 2


@pytest.mark.parametrize(("ranks", "leaver", "case"), LEFT)
def test_the_other_ranks_end_after_the_sentence_of_the_rank_that_leaves(
    ended: Callable[..., Any], ranks: int, leaver: int, case: str
) -> None:
    found = ended(case, ranks, leaver)
    assert found.code != 0
    sentence = f"^rank {leaver} on .* has left the run in {LEFT[ranks, leaver, case]}; the other ranks end"
    assert re.search(sentence, found.stderr, re.MULTILINE)
    assert (
        len(re.findall(r"^rank \d on .* has left the run in .*; the other ranks end", found.stderr, re.MULTILINE)) == 1
    )


def test_a_wrong_call_on_one_rank_ends_all_ranks(ended: Callable[..., Any]) -> None:
    found = ended("wrong call")
    assert "RANK 1 ENDED ValueError: data of the type tuple has no position" in found.stdout
    assert "RANK 0 ENDED JobError: rank 1: ValueError: data of the type tuple has no position" in found.stdout


def test_ranks_that_leave_a_loop_together_continue(ended: Callable[..., Any]) -> None:
    found = ended("loop break all")
    assert (found.code, re.findall("STEPS (.*)", found.stdout)) == (0, ["4"] * 2)
