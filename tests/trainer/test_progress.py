"""How far a run is: lines in files, events for TensorBoard, reports to the operator; none of them can hurt the run."""

import json
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from horovodjob_trainer.reporting import progress_client
from horovodjob_trainer.reporting.progress_client import Poster
from horovodjob_trainer.reporting.reporter import Place, Reporter

said: list[str] = []
SECONDS = 120


class Operator:
    """Takes reports as the operator does; `answers` are the codes that it gives first."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.reports: list[tuple[str, Any]] = []
        self.connections: set[Any] = set()
        self.changed = threading.Condition()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer.changed:
                    outer.connections.add(self.client_address)
                    code = outer.answers.pop(0) if outer.answers else 204
                    if code == 204:
                        outer.reports.append((self.headers["Authorization"], body))
                    outer.changed.notify_all()
                self.send_response(code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/progress"

    def has_left(self, answers: int) -> bool:
        return len(self.answers) == answers

    def taken(self, count: int) -> list[tuple[str, Any]]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.reports) >= count, SECONDS)
            return list(self.reports)


@pytest.fixture
def operator() -> Iterator[Operator]:
    server = Operator()
    yield server
    server.server.shutdown()


@pytest.fixture(scope="module")
def operator_of_run() -> Iterator[Operator]:
    server = Operator()
    yield server
    server.server.shutdown()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    said.clear()
    path = tmp_path / "token"
    path.write_text("first\n")
    return path


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that others use too may take its time."""
    monkeypatch.setattr(progress_client, "TIMEOUT_SECONDS", SECONDS)
    monkeypatch.setattr(progress_client, "LAST_SECONDS", SECONDS)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_client, "INTERVAL_SECONDS", 0.05)


def test_a_report_carries_the_token_of_the_moment(operator: Operator, token: Path, quick: None) -> None:
    poster = Poster(operator.url, token, said.append)
    poster.post({"epoch": 1})
    assert operator.taken(1) == [("Bearer first", {"epoch": 1})]
    token.write_text("second")
    poster.post({"epoch": 2})
    assert operator.taken(2)[1] == ("Bearer second", {"epoch": 2})
    assert said == []


def test_a_standby_is_asked_again_on_another_connection(operator: Operator, token: Path) -> None:
    operator.answers = [503, 503]
    poster = Poster(operator.url, token, said.append)
    poster.post({"epoch": 1})
    assert operator.taken(1)[0][1] == {"epoch": 1}
    assert len(operator.connections) == 3
    assert said == []


def test_the_last_report_is_sent_before_the_end(
    operator: Operator, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_client, "INTERVAL_SECONDS", 100 * SECONDS)
    poster = Poster(operator.url, token, said.append)
    poster.post({"epoch": 1})
    operator.taken(1)
    poster.post({"epoch": 2})  # its turn comes after the interval
    poster.post({"epoch": 3})
    poster.close()
    assert [report["epoch"] for _, report in operator.reports] == [1, 3]


@pytest.mark.parametrize("answer", [400, 401, 403, 413, 429])
def test_a_refusal_is_said_once_and_never_again(operator: Operator, token: Path, quick: None, answer: int) -> None:
    operator.answers = [answer, answer]
    poster = Poster(operator.url, token, said.append)
    for left in (1, 0):
        poster.post({"epoch": 2 - left})
        with operator.changed:
            assert operator.changed.wait_for(partial(operator.has_left, left), SECONDS)
    poster.post({"epoch": 3})
    assert operator.taken(1)[0][1] == {"epoch": 3}
    assert len(said) == 1
    assert f"the operator answers {answer}" in said[0]
    assert "first" not in said[0]


def test_neither_a_post_nor_the_end_waits_for_an_operator_that_does_not_answer(
    token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_client, "LAST_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        poster = Poster(f"http://127.0.0.1:{silent.getsockname()[1]}/", token, said.append)
        poster.post({"epoch": 1})
        with silent.accept()[0]:
            poster.post({"epoch": 2})
            poster.close()
            assert poster.thread.is_alive()  # the answer is still awaited


def test_an_operator_that_is_gone_is_said(token: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/"
    gone = Poster(url, token, said.append)
    gone.post({"epoch": 1})
    deadline = time.monotonic() + SECONDS
    while not said:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    gone.close()
    (sentence,) = said
    assert sentence.startswith("Progress cannot be reported to the operator, training goes on: ")


def test_no_variables_no_poster(token: Path) -> None:
    assert Poster.from_environment({}, said.append) is None
    assert Poster.from_environment({"HOROVODJOB_PROGRESS_URL": "http://x/"}, said.append) is None


def place(position: int = 320) -> Place:
    return Place(
        epoch=2, epochs=4, step=position // 64, steps_per_epoch=10, position=position, total=2560, global_step=5
    )


def reporter(logs: Path, **changes: Any) -> Reporter:
    settings = {"tensorboard": None, "attempt": 2, "ranks": 2, "seconds": 5.0, "poster": None, "say": said.append}
    return Reporter(logs=logs, **{**settings, **changes})


def test_a_record_has_what_a_plot_needs(tmp_path: Path) -> None:
    said.clear()
    told = reporter(tmp_path / "logs")
    told.begin(0)
    told.report(place(), {"loss": 1.5, "accuracy": 0.5}, 1e-3)
    told.close(done=True)
    (line,) = (tmp_path / "logs" / "progress.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert {key: record[key] for key in ("attempt", "epoch", "epochs", "step", "stepsPerEpoch", "loss")} == {
        "attempt": 2, "epoch": 2, "epochs": 4, "step": 5, "stepsPerEpoch": 10, "loss": 1.5,
    }  # fmt: skip
    assert (record["progress"], record["learningRate"]) == (0.125, 1e-3)
    assert record["samplesPerSecond"] == pytest.approx(2 * record["samplesPerSecondPerRank"], rel=1e-3)
    assert record["eta"] >= record["time"]
    assert said[0].startswith("Epoch 2/4 5/10 loss 1.5000 accuracy 0.5000 ")


def test_a_second_attempt_goes_on_in_the_same_file(tmp_path: Path) -> None:
    for _ in range(2):
        told = reporter(tmp_path)
        told.report(place(), {"loss": 1.0}, 1e-3)
        told.close(done=False)
    assert len((tmp_path / "progress.jsonl").read_text().splitlines()) == 2


def test_numbers_that_json_lacks_become_null_and_stay_out_of_the_status(
    tmp_path: Path, operator: Operator, token: Path
) -> None:
    told = reporter(tmp_path, poster=Poster(operator.url, token, said.append))
    told.report(place(), {"loss": math.nan, "accuracy": 0.1}, 1e-3)
    assert operator.taken(1)[0][1]["metrics"] == {"accuracy": 0.1}
    told.close(done=False)
    text = (tmp_path / "progress.jsonl").read_text()
    assert "NaN" not in text
    assert json.loads(text)["loss"] is None


def test_the_end_is_reported_as_one_whole(tmp_path: Path, operator: Operator, token: Path) -> None:
    told = reporter(tmp_path, poster=Poster(operator.url, token, said.append))
    told.report(place(), {"loss": 1.0}, 1e-3)
    told.close(done=True)
    assert [report["progress"] for _, report in operator.taken(1)][-1] == 1.0


def test_files_that_cannot_be_written_are_said_once_and_cost_nothing(tmp_path: Path) -> None:
    said.clear()
    (tmp_path / "file").write_text("")
    told = reporter(tmp_path / "file", tensorboard=tmp_path / "file" / "tensorboard")
    for _ in range(3):
        told.report(place(), {"loss": 1.0}, 1e-3)
    told.close(done=True)
    assert len([line for line in said if "goes on without" in line and "progress.jsonl" in line]) == 1
    assert len([line for line in said if "goes on without TensorBoard" in line]) == 1


def test_a_disk_that_fills_up_is_said_once(tmp_path: Path) -> None:
    said.clear()
    told: Any = reporter(tmp_path)
    told.lines.file.close()
    told.lines.file = open("/dev/full", "a", buffering=1)  # noqa: SIM115
    for _ in range(3):
        told.report(place(), {"loss": 1.0}, 1e-3)
    told.close(done=True)
    assert len([line for line in said if "No space left" in line]) == 1


OWN_SCRIPT = """
import keras, numpy as np
import horovodjob_trainer.hvd as hvd
from horovodjob_trainer.callbacks import ProgressCallback

hvd.init()
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
model.fit(np.ones((64, 4)), np.ones(64), batch_size=8, epochs=3, verbose=0, callbacks=[ProgressCallback(batch_size=8)])
"""


def test_a_script_with_the_callback_tells_as_the_program_does(
    run: Callable[..., Any], preloaded_python: list[str], operator: Operator, token: Path, tmp_path: Path
) -> None:
    variables = {
        "HOROVODJOB_PROGRESS_URL": operator.url,
        "HOROVODJOB_PROGRESS_TOKEN_FILE": str(token),
        "AZ_BATCHAI_STDOUTERR_DIR": str(tmp_path),
    }
    ended = run(2, [*preloaded_python, "-c", OWN_SCRIPT], variables)
    assert ended.code == 0, ended.stderr
    last = operator.reports[-1][1]
    assert (last["progress"], last["epoch"], last["epochs"], last["step"], last["stepsPerEpoch"]) == (1.0, 3, 3, 8, 8)
    assert [line.split()[1] for line in ended.stdout.splitlines() if " 8/8 " in line] == ["1/3", "2/3", "3/3"]
    records = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert records[-1]["progress"] == 1.0


@pytest.fixture(scope="module")
def reported(
    run: Callable[..., Any],
    trainer: Callable[..., list[str]],
    operator_of_run: Operator,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Any, Path]:
    """Two ranks whose rank 0 tells an operator how far it is."""
    directory = tmp_path_factory.mktemp("reported")
    (directory / "token").write_text("secret-token")
    flags = ("--dataset", "digits", "--dir", directory, "--epochs", 2, "--batch-size", 64, "--log-seconds", 0.2)
    variables = {
        "HOROVODJOB_PROGRESS_URL": operator_of_run.url,
        "HOROVODJOB_PROGRESS_TOKEN_FILE": str(directory / "token"),
        "AZ_BATCHAI_STDOUTERR_DIR": str(directory / "logs"),
    }
    return run(2, trainer(*flags), variables), directory


def test_a_run_tells_the_operator_up_to_its_end(reported: tuple[Any, Path], operator_of_run: Operator) -> None:
    ended, _ = reported
    assert ended.code == 0, ended.stderr
    last = operator_of_run.reports[-1][1]
    assert (last["progress"], last["epoch"], last["epochs"], last["step"], last["stepsPerEpoch"]) == (1.0, 2, 2, 23, 23)
    assert set(last) == {
        "attempt", "epoch", "epochs", "step", "stepsPerEpoch", "progress", "samplesPerSecond", "eta", "metrics",
    }  # fmt: skip
    assert last["metrics"].keys() == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert all(authorization == "Bearer secret-token" for authorization, _ in operator_of_run.reports)
    assert "secret-token" not in ended.stdout + ended.stderr


def test_a_run_leaves_lines_and_events_beside_the_jobs_logs(reported: tuple[Any, Path]) -> None:
    import tensorflow as tf

    logs = reported[1] / "logs"
    records = [json.loads(line) for line in (logs / "progress.jsonl").read_text().splitlines()]
    assert [record["progress"] for record in records] == sorted(record["progress"] for record in records)
    assert records[-1]["metrics"].keys() == {"loss", "accuracy", "val_loss", "val_accuracy"}
    tags = set()
    for path in (logs / "tensorboard").iterdir():
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            tags |= {value.tag for value in event.summary.value}
    assert {"loss", "val_accuracy", "learning_rate", "images_per_second"} <= tags
