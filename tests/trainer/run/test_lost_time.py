"""What the time of a training was used for: the reports have the times that the program has measured."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainer.reporting.operator_server import OperatorServer
from trainer.support.waiting import TIMEOUT_SECONDS

PROGRAM = Path(__file__).parent / "programs" / "lost_time.py"
STEPS, CHECKPOINT, KILLED = 20, 8, 12
Train = Callable[..., Any]


@pytest.fixture
def train(start: Any, preloaded_python: list[str], tmp_path: Path) -> Iterator[Train]:
    """Trains with delays in seconds, and returns the last report of the attempt, the times of its steps, and the file.

    On a busy machine, each part can need longer than its delay, in the report and in these times.
    """
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
        with operator.changed:
            assert operator.changed.wait_for(lambda: usage(attempt)["steps"] == (killed or STEPS), TIMEOUT_SECONDS)
        times = json.loads((tmp_path / "times.json").read_text())
        return usage(attempt), [*zip(*times["steps"], strict=True)], times

    def usage(attempt: int) -> Any:
        reports = [body for _, body in operator.reports if body.get("usage") and body["attempt"] == attempt]
        return reports[-1]["usage"] if reports else {"steps": 0}

    yield trained
    operator.server.shutdown()


def test_the_causes_have_the_measured_times_and_an_attempt_continues_its_steps(train: Train) -> None:
    usage, (_, waited, *_), times = train(0.5, 0.1, 0.0, KILLED)
    # The first batch is a part of the start. The last report can be before or after the batch in which a rank dies.
    least, error = sum(waited[1:]), part(usage["seconds"])
    assert least - error <= usage["seconds"]["input"] <= least + times["waited"] + error
    usage, (between, _, computed, exchanged), times = train(0.0, 0.4, 0.6, attempt=2)
    assert (usage["firstStep"], usage["steps"]) == (CHECKPOINT, STEPS)
    # The first step is a part of the start. The last one of an epoch counts as a validation, since one can follow it.
    seconds = usage["seconds"]
    # Between two steps is the work of the run, which is a part of the step, and a batch that is there.
    own = sum(computed[1:-1]) + sum(between[1:])
    assert seconds["steps"] + seconds["input"] == pytest.approx(own, abs=part(seconds))
    assert seconds["input"] <= sum(between[1:]) + 0.1
    assert seconds["exchange"] == pytest.approx(sum(exchanged[1:-1]), abs=part(seconds))
    last = computed[-1] + exchanged[-1]
    assert 0.9 * last < seconds["validation"] < last + times["at_end"] + 0.1
    assert seconds["stalled"] == 0


def part(seconds: Any) -> float:
    """By how much a cause can differ from what the program has measured: 5 % of the time."""
    return 0.05 * float(sum(seconds.values()))
