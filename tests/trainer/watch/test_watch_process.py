"""What the watch process of a rank knows of it."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from horovodjob_trainer.reporting.watch_process import Settings, Watch
from horovodjob_trainer.watch.activity import Activity, Field
from horovodjob_trainer.watch.judgement import SILENT_SECONDS, RankState, verdict
from horovodjob_trainer.watch.sections import Section


@pytest.fixture
def rank() -> Activity:
    return Activity()


@pytest.fixture
def watch(rank: Activity, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """The watch of this process as rank 1, which has no handler for the signal for its stacks."""
    monkeypatch.setattr(Watch, "stacks", lambda self: "")
    stacks = os.memfd_create("stacks")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        own: dict[str, Any] = {
            "activity": rank.descriptor,
            "stacks": stacks,
            "listener": listener.fileno(),
            "lifeline": -1,
        }
        yield Watch(Settings(rank=1, host="worker-1", pid=os.getpid(), attempt=1, **own), "token")
    os.close(stacks)


def test_a_pause_of_the_pod_is_no_stall(rank: Activity, watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    rank.enter(Section.START)
    for _ in range(3):
        rank.complete_step()
    rank[Field.SINCE] = time.monotonic() - 7200
    watch.observed_since = time.monotonic() - 200  # the pod has run again since then
    watch.check()
    assert capsys.readouterr().err == ""
    watch.observed_since -= 200
    watch.check()
    assert "TrainingStalled: no step since" in capsys.readouterr().err
    watch.observed_since = time.monotonic()  # a pause during the stall does not end it
    watch.check()
    assert capsys.readouterr().err == ""
    rank.complete_step()
    watch.check()
    assert "the training continues" in capsys.readouterr().err


def test_the_report_about_many_ranks_says_how_many_there_are(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[Any] = []
    monkeypatch.setattr(watch, "client", type("Client", (), {"post": lambda self, report: reports.append(report)})())
    ranks = [RankState(rank, f"worker-{rank}", Section.STEP, is_waiting=rank < 24) for rank in range(512)]
    watch._post_stall(verdict(ranks), is_over=False)
    stall = reports[0]["stall"]
    assert [each["rank"] for each in stall["blamed"]] == [*range(24, 32)]
    assert stall["others"] == "480 more ranks are not in the exchange; the other 24 ranks wait in the exchange"


def test_a_rank_is_silent_only_after_so_long_that_it_is_certain(
    rank: Activity, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horovodjob_trainer.reporting.watch_process.stacks.process_state", lambda pid: "")
    rank[Field.SAMPLED] = time.monotonic() - SILENT_SECONDS + 0.3
    assert watch.state().is_blocked
    rank[Field.SAMPLED] = time.monotonic() - SILENT_SECONDS + 1
    threading.Timer(0.2, lambda: rank.__setitem__(Field.SAMPLED, time.monotonic())).start()
    assert not watch.state().is_blocked
