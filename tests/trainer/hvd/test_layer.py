"""Horovod for Keras 3 on two ranks: optimizers, callbacks, tapes, losses, kinds of models, errors and warnings."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODULES, RANKS = ("collectives", "training", "models", "losses", "optimizers"), 2
UNEVEN = Path(__file__).parent / "programs" / "uneven_steps.py"


def test_the_ranks_pass(passed: Callable[[str], None], case: str) -> None:
    passed(case)


def test_messages_name_the_ranks_and_steps_of_trainings_of_unknown_and_different_lengths(
    run: Callable[..., Any], preloaded_python: list[str]
) -> None:
    stalls = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "30"}
    ended = run(2, [*preloaded_python, str(UNEVEN)], stalls)
    assert ended.code != 0
    left = "has left the run in step 3 of epoch 1, for which its data has no batch"
    assert f"rank 0 {left}, and waits for the other ranks to leave it, since 1 s; " in ended.stderr
    assert re.search(f"^rank 0 on .* {left}; the other ranks end", ended.stderr, re.MULTILINE)
    assert "RuntimeError: the data of rank 0 has ended before step 3 of epoch 1; every step needs" in ended.stderr
    assert "RuntimeError: rank 1 was in step 3 of epoch 1 when another rank ended" in ended.stderr
