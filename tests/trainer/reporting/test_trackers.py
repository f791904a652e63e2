"""Experiment trackers, whose packages the tests do not have: neither an error nor their absence ends a run."""

import json
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from horovodjob_trainer.cli.configuration import load_configuration
from horovodjob_trainer.errors import UsageError
from horovodjob_trainer.reporting import tracker_process
from horovodjob_trainer.reporting.trackers import Tracker, plain_settings

START = {"kind": "mlflow", "target": "digits", "run": "a1", "name": "", "settings": {}}
VALUES = {"time": 1.0, "step": 3, "values": {"loss": 0.5}}


@pytest.mark.parametrize(("kind", "name"), [("mlflow", "MLflow"), ("wandb", "Weights & Biases")])
def test_a_missing_package_is_logged_once(capfd: pytest.CaptureFixture[str], kind: str, name: str) -> None:
    tracker = Tracker(kind, "digits", run="a1", name="", settings={"epochs": 3})
    for step in range(3):
        tracker.write(step, {"loss": 0.5, "other": float("nan")})
    tracker.close(done=True)
    tracker.write(4, {"loss": 0.5})
    assert capfd.readouterr().out == (
        f"Training continues without {name}: No module named '{kind}'; install the package in the image\n"
    )


class Server:
    """A tracker that fails some times, and then records what it gets."""

    def __init__(self, failures: int) -> None:
        self.failures, self.received = failures, list[Any]()

    def write(self, *values: Any) -> None:
        self._receive(values)

    def close(self, done: bool) -> None:
        self._receive(done)

    def _receive(self, value: Any) -> None:
        self.failures -= 1
        if self.failures >= 0:
            raise ConnectionError("http://me:word@server/?key=s3cret refused\nthe connection")
        self.received.append(value)


def tracked(server: Server, *messages: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    queue: tracker_process.Messages = Queue()
    for message in (START, *messages):
        queue.put(message)
    monkeypatch.setitem(tracker_process.CONNECTORS, "mlflow", ("MLflow", lambda start: server))
    monkeypatch.setattr(tracker_process, "RETRY_SECONDS", 0)
    tracker_process.track(queue, lines.append)
    return lines


def test_values_are_sent_again_after_errors_which_are_logged_once_without_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "s3cret")
    server = Server(failures=2)
    lines = tracked(server, VALUES, {"done": True}, monkeypatch=monkeypatch)
    assert server.received == [(1.0, 3, {"loss": 0.5}), True]
    assert lines == [
        "Training continues without MLflow until it responds: http://***@server/?key=*** refused the connection"
    ]


def test_a_server_that_fails_to_the_end_delays_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(failures=100)
    assert len(tracked(server, {"done": False}, monkeypatch=monkeypatch)) == 1
    assert server.failures == 99


def test_a_tracker_gets_no_address_and_the_flag_accepts_none(tmp_path: Path) -> None:
    settings = {"epochs": 3, "dir": tmp_path, "archive_url": "https://a/b?sig=1", "freeze": None, "x": "http://a"}
    assert plain_settings(settings) == {"epochs": 3, "dir": str(tmp_path)}
    json.dumps(plain_settings(settings))
    assert load_configuration(["--mlflow", "/Shared/my digits"], environment={}).mlflow == "/Shared/my digits"
    for flag in ("--mlflow", "--wandb"):
        with pytest.raises(UsageError, match="is not the name of an experiment or project; addresses and keys belong"):
            load_configuration([flag, "http://me:word@server"], environment={})
