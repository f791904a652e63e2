"""What the time of a training was used for: the report has the times that the program has measured, within 5 %."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainer.reporting.operator_server import OperatorServer

PROGRAM = Path(__file__).parent / "programs" / "lost_time.py"
STEPS, CHECKPOINT, KILLED = 20, 8, 12
Train = Callable[..., Any]


@pytest.fixture
def train(start: Any, preloaded_python: list[str], tmp_path: Path) -> Iterator[Train]:
    """Trains with delays in seconds, and returns the last report of the attempt and the times of its steps."""
    operator = OperatorServer()
    (tmp_path / "token").write_text("secret")
    variables = {
        "HOROVODJOB_POD": "pod",
        "HOROVODJOB_PROGRESS_URL": operator.url,
        "HOROVODJOB_PROGRESS_TOKEN_FILE": str(tmp_path / "token"),
    }

    def trained(of_input: float, of_step: float, more: float, killed: int = 0, attempt: int = 1) -> Any:
        arguments = map(str, (tmp_path / "run", STEPS, of_input, of_step, more, killed))
        job = start(
            [*preloaded_python, str(PROGRAM), *arguments], extra=variables | {"HOROVODJOB_ATTEMPT": f"{attempt}"}
        )
        code, output = job.ended()
        assert code == (137 if killed else 0), output
        if killed:
            return None
        found = [body["usage"] for _, body in operator.reports if body.get("usage") and body["attempt"] == attempt]
        return found[-1], [*zip(*json.loads((tmp_path / "times.json").read_text()), strict=True)]

    yield trained
    operator.server.shutdown()


def test_the_time_for_batches_that_arrive_late_is_input(train: Train) -> None:
    usage, (waited, *_) = train(0.5, 0.1, 0.0)
    assert usage["seconds"]["input"] == pytest.approx(sum(waited[1:]), rel=0.05)  # the first is a part of the start


def test_the_time_of_steps_and_that_for_a_slower_rank_are_told_apart_after_a_kill(train: Train) -> None:
    train(0.0, 0.4, 0.6, KILLED)
    usage, (_, computed, exchanged) = train(0.0, 0.4, 0.6, attempt=2)
    assert (usage["firstStep"], usage["steps"]) == (CHECKPOINT, STEPS)
    # The first step is a part of the start. The last one of an epoch counts as a validation, since one can follow it.
    seconds = usage["seconds"]
    assert seconds["steps"] == pytest.approx(sum(computed[1:-1]), rel=0.05)
    assert seconds["exchange"] == pytest.approx(sum(exchanged[1:-1]), rel=0.05)
    assert seconds["validation"] == pytest.approx(computed[-1] + exchanged[-1], rel=0.05, abs=0.1)
    assert seconds["stalled"] == 0
