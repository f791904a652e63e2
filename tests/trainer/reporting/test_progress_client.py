"""Progress reports to the operator: tokens, retries, intervals and errors, none of which ends the run."""

import socket
import time
from functools import partial
from pathlib import Path

import pytest

from horovodjob_trainer.reporting import progress_client
from horovodjob_trainer.reporting.progress_client import ProgressClient
from trainer.reporting.operator_server import TIMEOUT_SECONDS, OperatorServer


@pytest.fixture
def short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_client, "INTERVAL_SECONDS", 0.05)


def test_a_report_contains_the_current_token(
    log_lines: list[str], operator: OperatorServer, token: Path, short_interval: None
) -> None:
    client = ProgressClient(operator.url, token, log_lines.append)
    client.post({"epoch": 1})
    assert operator.wait_for_reports(1) == [("Bearer first", {"epoch": 1})]
    token.write_text("second")
    client.post({"epoch": 2})
    assert operator.wait_for_reports(2)[1] == ("Bearer second", {"epoch": 2})
    assert log_lines == []


def test_a_503_of_a_standby_is_retried_on_a_new_connection(
    log_lines: list[str], operator: OperatorServer, token: Path
) -> None:
    operator.answers = [503, 503]
    client = ProgressClient(operator.url, token, log_lines.append)
    client.post({"epoch": 1})
    assert operator.wait_for_reports(1)[0][1] == {"epoch": 1}
    assert len(operator.connections) == 3
    assert log_lines == []


def test_the_last_report_is_sent_when_the_client_closes(
    log_lines: list[str], operator: OperatorServer, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_client, "INTERVAL_SECONDS", 100 * TIMEOUT_SECONDS)
    client = ProgressClient(operator.url, token, log_lines.append)
    client.post({"epoch": 1})
    operator.wait_for_reports(1)
    client.post({"epoch": 2})  # queued until the interval ends
    client.post({"epoch": 3})
    client.close()
    assert [report["epoch"] for _, report in operator.reports] == [1, 3]


@pytest.mark.parametrize("answer", [400, 429])
def test_an_error_response_is_logged_once(
    log_lines: list[str], operator: OperatorServer, token: Path, short_interval: None, answer: int
) -> None:
    operator.answers, operator.sentence = [answer, answer], "metrics.a: should be a valid number\x1b[2J\n"
    client = ProgressClient(operator.url, token, log_lines.append)
    for left in (1, 0):
        client.post({"epoch": 2 - left})
        with operator.changed:
            assert operator.changed.wait_for(partial(operator.has_remaining, left), TIMEOUT_SECONDS)
    client.post({"epoch": 3})
    assert operator.wait_for_reports(1)[0][1] == {"epoch": 3}
    assert len(log_lines) == 1
    assert f"the operator responded with {answer}" in log_lines[0]
    assert log_lines[0].endswith(": metrics.a: should be a valid number [2J")
    assert "first" not in log_lines[0]


def test_what_the_operator_changed_in_a_report_is_logged_once(
    log_lines: list[str], operator: OperatorServer, token: Path, short_interval: None
) -> None:
    operator.answers, operator.sentence = [200, 200], "metric 'a b' is stored as a_b"
    client = ProgressClient(operator.url, token, log_lines.append)
    for epoch in (1, 2, 3):
        client.post({"epoch": epoch})
        with operator.changed:
            assert operator.changed.wait_for(partial(operator.has_remaining, max(0, 2 - epoch)), TIMEOUT_SECONDS)
    operator.wait_for_reports(1)
    client.close()
    assert log_lines == ["The operator changed metrics of the progress report: metric 'a b' is stored as a_b"]


def test_neither_post_nor_close_waits_for_an_operator_that_does_not_respond(
    log_lines: list[str], token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_client, "CLOSE_TIMEOUT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = ProgressClient(f"http://127.0.0.1:{silent.getsockname()[1]}/", token, log_lines.append)
        client.post({"epoch": 1})
        with silent.accept()[0]:
            client.post({"epoch": 2})
            client.close()
            assert client.thread.is_alive()  # still waits for the response


def test_an_unreachable_operator_is_logged(log_lines: list[str], token: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/"
    client = ProgressClient(url, token, log_lines.append)
    client.post({"epoch": 1})
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not log_lines:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    client.close()
    (sentence,) = log_lines
    assert sentence.startswith("Cannot report progress to the operator; training continues: ")
