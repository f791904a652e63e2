"""What the watch process of a rank knows of it."""

import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from horovodjob_trainer.reporting.watch_process import Settings, Watch
from horovodjob_trainer.watch.activity import Activity, Field, Place
from horovodjob_trainer.watch.judgement import SILENT_SECONDS, RankState, verdict
from horovodjob_trainer.watch.peers import deputy_rank
from horovodjob_trainer.watch.sections import Section

MODULE = "horovodjob_trainer.reporting.watch_process"


@pytest.fixture
def rank() -> Activity:
    return Activity()


@pytest.fixture
def watch(rank: Activity, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """The watch of this process as rank 1, which has no handler for the signal for its stacks."""
    monkeypatch.setattr(Watch, "stacks", lambda self: "")
    yield from new_watch(rank)


def new_watch(
    activity: Activity, rank: int = 1, peers: list[dict[str, Any]] | None = None, **settings: Any
) -> Iterator[Watch]:
    """The watch of this process as a rank."""
    stacks = os.memfd_create("stacks")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        own: dict[str, Any] = {
            "activity": activity.descriptor,
            "stacks": stacks,
            "listener": listener.fileno(),
            "lifeline": -1,
        }
        watch = Watch(Settings(rank=rank, host=f"worker-{rank}", pid=os.getpid(), attempt=1, **own, **settings))
        watch.connect("token", peers or [])
        yield watch
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


def test_the_log_has_each_verdict_of_a_stall_that_names_another_cause(
    rank: Activity, watch: Watch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rank.enter(Section.STEP)
    rank[Field.SINCE] -= 7200
    watch.observed_since -= 7200
    unreachable = {"is_answering": False}, "does not answer: its pod, its node or the network to it has failed"
    reading = (
        {"section": Section.STEP, "frame": "load in train.py:31"},
        "is computing, or reads its next batch, at load",
    )
    elsewhere = {"section": Section.STEP, "frame": "load in train.py:32"}, ""
    stopped = {"kernel": "is stopped"}, "is stopped"
    for state, said in (unreachable, (unreachable[0], ""), reading, elsewhere, stopped, (stopped[0], "")):
        monkeypatch.setattr(watch, "_states", lambda state=state: [RankState(1, "worker-1", **state)])
        watch.reported_at = -math.inf
        watch.check()
        log = capsys.readouterr().err
        assert f"rank 1 on worker-1 {said}" in log if said else not log
    for frames, is_said in (("ab", True), ("cc", False), ("dd", False)):  # at the same place or not
        computing = [RankState(rank, "worker-1", Section.STEP, frame=frame) for rank, frame in enumerate(frames)]
        monkeypatch.setattr(watch, "_states", lambda states=computing: states)
        watch.reported_at = -math.inf
        watch.check()
        assert ("TrainingStalled" in capsys.readouterr().err) == is_said


def test_the_report_about_many_ranks_says_how_many_there_are(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[Any] = []
    monkeypatch.setattr(watch, "client", type("Client", (), {"post": lambda self, report: reports.append(report)})())
    ranks = [RankState(rank, f"worker-{rank}", Section.STEP, is_waiting=rank < 24) for rank in range(512)]
    watch._post_stall(verdict(ranks), is_over=False)
    stall = reports[0]["stall"]
    assert [each["rank"] for each in stall["blamed"]] == [*range(24, 32)]
    assert stall["others"] == "480 more ranks are not in the exchange; the other 24 ranks wait in the exchange"


def test_a_start_that_waits_in_the_kernel_for_too_long_is_stalled_until_the_call_returns(
    rank: Activity, watch: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    rank.enter(Section.SETUP)
    rank[Field.SAMPLED] = time.monotonic() + 60
    watch.looks_at = math.inf
    for is_held, text in ((False, ""), (True, "rank 1 on worker-1 "), (False, "the training continues")):
        watch.is_held = is_held
        watch.check()
        said = capsys.readouterr().err
        assert text in said if text else not said


def test_a_rank_is_silent_only_after_so_long_that_it_is_certain(
    rank: Activity, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horovodjob_trainer.reporting.watch_process.stacks.process_state", lambda pid: "")
    rank[Field.SAMPLED] = time.monotonic() - SILENT_SECONDS + 0.3
    assert watch.state().is_blocked
    rank[Field.SAMPLED] = time.monotonic() - SILENT_SECONDS / 2
    threading.Timer(0.2, lambda: rank.__setitem__(Field.SAMPLED, time.monotonic())).start()
    assert not watch.state().is_blocked


@pytest.mark.parametrize(("position", "missing"), [(120, "a step after step 120"), (None, "a step")])
def test_only_a_run_knows_whether_a_step_was_new(
    rank: Activity, watch: Watch, position: int | None, missing: str
) -> None:
    """The operator reads this from the log, if it gets no report."""
    assert (watch._known_steps(), watch._missing_step()) == (0, "a first step")
    rank.enter(Section.START)
    rank.complete_step(position)
    assert (watch._known_steps(), watch._missing_step()) == (position, missing)


@pytest.mark.parametrize(
    ("number", "waits", "text"),
    [
        (0, False, "rank 0 on worker-0 is in its start-up"),
        (0, True, "rank 0 waits for ranks that have not started; each of them says in the log where"),
        (1, False, "rank 1 on worker-1 is in its start-up"),
        (1, True, ""),
    ],
)
def test_before_the_ranks_know_each_other_each_says_that_it_has_not_started(
    rank: Activity,
    posted: list[dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    waits: bool,
    text: str,
) -> None:
    monkeypatch.setattr(Watch, "stacks", lambda self: "")
    (watch,) = new_watch(rank, rank=number)
    watch.is_connected.clear()
    rank.enter(Section.START)
    rank[Field.EXCHANGES] = int(waits)
    rank[Field.SAMPLED] = time.monotonic() + 60
    for seconds in (3590, 3700):
        assert capsys.readouterr().err == ""
        rank[Field.SINCE] = time.monotonic() - seconds
        watch.check()
    assert text in capsys.readouterr().err
    assert len(posted) == (number == 0)


def test_a_rank_whose_first_step_waits_for_the_others_is_in_the_exchange(
    rank: Activity, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}.stacks.process_state", lambda pid: "")
    rank.enter(Section.START)
    for place, waits in ((Place.COMPUTATION, False), (Place.EXCHANGE, True)):
        rank[Field.PLACE], rank[Field.SAMPLED] = int(place), time.monotonic() + 60
        assert watch.state().is_waiting is waits

    def sample() -> None:
        rank[Field.PLACE], rank[Field.SAMPLED] = int(Place.EXCHANGE), time.monotonic()

    rank[Field.PLACE], rank[Field.SAMPLED] = int(Place.COMPUTATION), time.monotonic() - 1
    threading.Timer(0.2, sample).start()
    assert watch.state().is_waiting, "the sample is older than the question"


# ---- the deputy of rank 0


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The reports of the watch."""
    reports: list[dict[str, Any]] = []

    class Client:
        def post(self, report: dict[str, Any]) -> None:
            reports.append(report)

        def close(self) -> None:
            pass

        def deliver(self, report: dict[str, Any]) -> bool:
            reports.append(report)
            return len(reports) > 1

    monkeypatch.setattr(f"{MODULE}.ProgressClient.from_environment", lambda *_: Client())
    return reports


@pytest.fixture
def frozen() -> Iterator[socket.socket]:
    """The watch process of rank 0, which is stopped: its host completes connections, and nothing answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def deputy(
    rank: Activity, posted: list[dict[str, Any]], frozen: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Watch]:
    """The watch of rank 1, in another pod than rank 0; its rank has completed steps, and completes none any more."""
    monkeypatch.setattr("horovodjob_trainer.watch.peers.ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(f"{MODULE}.RETRY_SECONDS", 0.1)
    waits = RankState(1, "worker-1", Section.STEP, is_waiting=True)
    monkeypatch.setattr(Watch, "state", lambda self: waits)
    first = {"rank": 0, "host": "worker-0", "addresses": ["127.0.0.1"], "port": frozen.getsockname()[1]}
    rank.enter(Section.STEP)
    rank.complete_step(1)
    rank.complete_step(2)
    yield from new_watch(rank, peers=[first], limit=8)


def test_the_deputy_reports_a_stall_if_the_watch_of_rank_0_does_not_answer(
    rank: Activity, deputy: Watch, posted: list[dict[str, Any]], frozen: socket.socket
) -> None:
    rank[Field.SINCE] = time.monotonic() - 15
    deputy.check()
    assert posted == [], "rank 0 reports first"
    rank[Field.SINCE] = time.monotonic() - 17
    deputy.check()
    (report,) = posted
    assert (report["isDeputy"], "usage" in report, "nextWithin" in report) == (True, False, False)
    (blamed,) = report["stall"]["blamed"]
    assert (blamed["rank"], blamed["host"]) == (0, "worker-0")
    assert blamed["text"] == "does not answer: its pod, its node or the network to it has failed"
    assert report["stall"]["others"] == "the other rank waits in the exchange"
    rank[Field.SINCE] = time.monotonic()
    deputy.check()
    assert posted[1:] == [{"attempt": 1, "stall": None, "isDeputy": True}]


@pytest.mark.parametrize("state", ["answers", "has ended"])
def test_the_deputy_is_silent_while_the_watch_of_rank_0_can_act(
    rank: Activity, deputy: Watch, posted: list[dict[str, Any]], frozen: socket.socket, state: str
) -> None:
    """A watch that has ended has a host that runs: rank 0 has left the training before the others."""
    rank[Field.SINCE] = time.monotonic() - 3600
    if state == "has ended":
        frozen.close()
        deputy.check()
    else:

        def answer() -> None:
            connection, _ = frozen.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"{}\n")

        thread = threading.Thread(target=answer)
        thread.start()
        deputy.check()
        thread.join()
    assert posted == []


def test_the_first_rank_on_another_host_is_the_deputy() -> None:
    hosts = ["worker-0", "worker-0", "worker-1", "worker-1", "worker-2"]
    ranks = [{"rank": rank, "host": host} for rank, host in enumerate(hosts)]
    assert deputy_rank(ranks) == 2
    assert deputy_rank(ranks[:2]) is None


def test_rank_0_announces_its_next_report_until_the_training_ends(rank: Activity, posted: list[dict[str, Any]]) -> None:
    (watch,) = new_watch(rank, rank=0)
    watch._post_all()
    assert "nextWithin" not in posted[-1], "the first step can be far"
    rank[Field.STEPS_IN_ATTEMPT] = 2
    watch._post_all()
    assert posted[-1]["nextWithin"] == 300
    watch.settings = replace(watch.settings, limit=1e6, slow=1e6)  # there is no stall, and no slow rank
    watch._post_all()
    assert (posted[-1]["nextWithin"], watch.interval_seconds) == (86400, 20), "what the operator accepts"
    posted.clear()
    watch.settings = replace(watch.settings, pid=os.getppid())  # the rank continues after its training
    watch._end()
    assert [report["nextWithin"] for report in posted] == [0, 0], "until the operator has taken it"
