"""What the time of a training was used for: the reports have the times that the program has measured.

So has the job that the operator computes from the reports of two attempts.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from horovodjob.api.constants import Phase
from horovodjob.api.status import Goodput
from horovodjob_operator.domain.stall_report import parse_stall
from trainer.reporting.operator_server import OperatorServer
from trainer.support.waiting import TIMEOUT_SECONDS
from unit.domain.fake_cluster import FakeCluster, training_job

PROGRAM = Path(__file__).parent / "programs" / "lost_time.py"
STEPS, CHECKPOINT, KILLED = 20, 8, 12
START_SECONDS = 3
Train = Callable[..., Any]


@pytest.fixture
def train(start: Any, preloaded_python: list[str], tmp_path: Path) -> Iterator[Train]:
    """Trains with delays in seconds, and returns the last report of the attempt, the times of its steps and the last.

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
        return usage(attempt), [*zip(*times["steps"], strict=True)], times["at_end"]

    def usage(attempt: int) -> Any:
        reports = [body for _, body in operator.reports if body.get("usage") and body["attempt"] == attempt]
        return reports[-1]["usage"] if reports else {"steps": 0}

    yield trained
    operator.server.shutdown()


def test_the_time_for_batches_that_arrive_late_is_input(train: Train) -> None:
    usage, (_, waited, *_), _ = train(0.5, 0.1, 0.0)
    # The first batch is a part of the start.
    assert usage["seconds"]["input"] == pytest.approx(sum(waited[1:]), abs=part(usage["seconds"]))


def test_the_time_of_steps_and_that_for_a_slower_rank_are_told_apart_and_a_kill_loses_steps(train: Train) -> None:
    first, (_, _, computed_first, exchanged_first), _ = train(0.0, 0.4, 0.6, KILLED)
    usage, (between, _, computed, exchanged), at_end = train(0.0, 0.4, 0.6, attempt=2)
    assert (usage["firstStep"], usage["steps"]) == (CHECKPOINT, STEPS)
    # The first step is a part of the start. The last one of an epoch counts as a validation, since one can follow it.
    seconds = usage["seconds"]
    # Between two steps is the work of the run, which is a part of the step, and a batch that is there.
    own = sum(computed[1:-1]) + sum(between[1:])
    assert seconds["steps"] + seconds["input"] == pytest.approx(own, abs=part(seconds))
    assert seconds["input"] <= sum(between[1:]) + 0.1
    assert seconds["exchange"] == pytest.approx(sum(exchanged[1:-1]), abs=part(seconds))
    last = computed[-1] + exchanged[-1]
    assert 0.9 * last < seconds["validation"] < last + at_end + 0.1
    assert seconds["stalled"] == 0

    found, total = goodput_of_job(first, usage)
    expected = {
        "steps": sum(computed_first[1:CHECKPOINT]) + sum(computed[1:-1]),
        "lost_steps": sum(computed_first[CHECKPOINT:]),
        "exchange": sum(exchanged_first[1:]) + sum(exchanged[1:-1]),
        "validation": seconds["validation"],
        "input": 0,
        "stalled": 0,
        "checkpoints": 0,
        "restart_delay": 10,
        "setup": first["seconds"]["setup"] + seconds["setup"],
    }
    expected["starting"] = total - sum(expected.values())
    assert expected["starting"] > 2 * START_SECONDS - 1
    assert found.seconds.model_dump() == pytest.approx(expected, abs=0.05 * total)
    assert sum(found.seconds.model_dump().values()) == total
    assert found.percent == pytest.approx(100 * expected["steps"] / total, abs=5)


def part(seconds: Any) -> float:
    """By how much a cause can differ from what the program has measured: 5 % of the time."""
    return 0.05 * float(sum(seconds.values()))


def goodput_of_job(*attempts: Any) -> tuple[Goodput, int]:
    """What the operator makes of the last reports of a job that waits and is suspended too, and its seconds."""
    cluster = FakeCluster(training_job())
    cluster.reconcile()
    cluster.wait(400)  # in the phase Queued
    cluster.start()
    began, outside = cluster.now, 0
    for number, usage in enumerate(attempts, 1):
        cluster.wait(START_SECONDS + round(sum(usage["seconds"].values())))
        body = {"attempt": cluster.status.attempt, "stall": None, "usage": usage}
        cluster.stall_report = parse_stall(json.dumps(body).encode())
        cluster.end_container("cifar-launcher", 0 if number == len(attempts) else 1)
        cluster.wait(2)
        cluster.reconcile()
        if cluster.status.phase is Phase.RESTARTING:
            cluster.remove_terminating_pods()
            cluster.wait(15)  # the delay is 10
            cluster.start()
            cluster.edit_run_policy(suspend=True)
            cluster.reconcile()
            cluster.remove_terminating_pods()
            cluster.wait(1000)
            outside = 1000
            cluster.edit_run_policy(suspend=False)
            cluster.start()
    assert cluster.status.phase is Phase.SUCCEEDED
    assert cluster.status.training is not None
    assert cluster.status.training.goodput is not None
    return cluster.status.training.goodput, round((cluster.now - began).total_seconds()) - outside
