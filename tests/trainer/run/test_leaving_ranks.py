"""A rank that leaves the steps of a run: the others leave, too, or all end with a sentence that names the rank."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs" / "leaving_ranks.py"
STEPS = "JobError: rank 0 has 10 steps per epoch and rank 1 has 8; every step needs all ranks, so give all ranks the "
EARLY = (
    "RuntimeError: EarlyStopping of loss ends the training after epoch 3 on rank 1 and not on rank 0: its metric "
    "differs between the ranks; list hvd.callbacks.MetricAverageCallback() before it"
)
AGREED = {  # the end on both ranks
    "epochs": "JobError: rank 0 has epochs 6 and rank 1 has 7; every step needs all ranks, so give all ranks the same",
    "loop steps": f"{STEPS}same number of steps",
    "arrays": "JobError: rank 1 has other arrays in hvd.Examples than rank 0: pass the same ones on all ranks, for "
    "example from sorted lists of files",
    "early": EARLY,
    "nan plain": "4 STEPS",
    "limit plain": "10 STEPS",
    "loop break all": "5 STEPS",
    # No checkpoint has the weights, which are not numbers.
    "nan": "JobError: stopped after step 4, of which ",
}
WARNED = {  # once, and by each rank that ends
    "no validation data on rank 1: its callbacks have no val_ metrics, by which those of the other ranks can save a "
    "model or change the learning rate; pass the same validation_data on all ranks": 1,
    "TerminateOnNaN ends the training after step 4 of the epoch on rank 1, so it ends on all ranks": 2,
    "Limit ends the training after epoch 1 on rank 1 and not on rank 0, so it ends on all ranks": 1,
}
LEFT = {  # by the rank that leaves, and the case
    (0, "end"): "the end of the training: SystemExit: 0",
    (1, "data"): r"step \d of epoch 1: \w+: .*a damaged file.*",
    (1, "one batch plain"): "step 10 of epoch 1, for which its data has no batch",
    (1, "loop error"): "step 6 of epoch 1, which is not the last one",
}


@pytest.fixture(scope="module")
def ended(run: Any, preloaded_python: list[str], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    def end(leaver: int, *cases: str, **variables: str) -> Any:
        program = [*preloaded_python, str(PROGRAM), str(tmp_path_factory.mktemp("run")), str(leaver), *cases]
        return run(2, program, variables)

    return end


def test_ranks_that_do_not_agree_end_a_training_together_and_can_begin_the_next(ended: Callable[..., Any]) -> None:
    found = ended(1, "wrong call", *AGREED)
    assert found.code == 1
    # Two ranks can print in one line.
    ended_cases = re.findall(r"RANK (\d) ([a-z ]+): (.*?)(?=RANK \d|$)", found.stdout, re.MULTILINE)
    ends = {(int(rank), case): end for rank, case, end in ended_cases}
    assert ends.pop((1, "wrong call")).startswith("ValueError: data of the type tuple has no position")
    assert ends.pop((0, "wrong call")).startswith("JobError: rank 1: ValueError: data of the type tuple has no posi")
    assert {each: end.partition("there is")[0] for each, end in ends.items()} == {
        (rank, case): end for rank in (0, 1) for case, end in AGREED.items()
    }
    assert {sentence: found.stderr.count(f"Horovod: {sentence}\n") for sentence in WARNED} == WARNED


@pytest.mark.parametrize(("leaver", "case"), LEFT)
def test_the_other_ranks_end_after_the_sentence_of_the_rank_that_leaves(
    ended: Callable[..., Any], leaver: int, case: str
) -> None:
    found = ended(leaver, case)
    assert found.code != 0
    sentences = re.findall(r"^rank \d on .* has left the run in .*; the other ranks end", found.stderr, re.MULTILINE)
    (sentence,) = sentences
    assert re.match(f"rank {leaver} on .* has left the run in {LEFT[leaver, case]}; the", sentence)


def test_a_rank_that_leaves_ends_all_ranks_that_exchange_over_mpi(ended: Callable[..., Any]) -> None:
    found = ended(1, "callback", HOROVODJOB_EXCHANGE="mpi4py")
    assert found.code != 0
    sentence = r"^rank 1 on .* has left the run in step 4 of epoch 1: KeyError: 'own mistake'$"
    assert re.search(sentence, found.stderr, re.MULTILINE)
