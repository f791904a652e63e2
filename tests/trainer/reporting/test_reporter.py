"""Progress reports in files, in the log and to the operator."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horovodjob_trainer.reporting.progress_client import TOKEN_VARIABLE, URL_VARIABLE
from horovodjob_trainer.reporting.reporter import Reporter, TrainingPosition
from trainer.reporting.operator_server import OperatorServer

ATTEMPT = {"HOROVODJOB_ATTEMPT": "2"}


def training_position(examples: int = 320) -> TrainingPosition:
    return TrainingPosition(
        epoch=2,
        epochs=4,
        step=examples // 64,
        steps_per_epoch=10,
        examples=examples,
        total_examples=2560,
        global_step=5,
    )


def build_reporter(log_lines: list[str], directory: Path, **changes: Any) -> Reporter:
    settings = {"ranks": 2, "interval_seconds": 5.0, "log": log_lines.append, "environment": ATTEMPT}
    return Reporter(directory=directory, **{**settings, **changes})


@pytest.fixture
def job_environment(operator: OperatorServer, token: Path) -> dict[str, str]:
    """The variables with which a job reports to the operator."""
    return ATTEMPT | {URL_VARIABLE: operator.url, TOKEN_VARIABLE: str(token)}


def test_a_record_has_the_values_for_a_plot(log_lines: list[str], tmp_path: Path) -> None:
    reporter = build_reporter(log_lines, tmp_path / "logs")
    reporter.begin(0)
    reporter.report(training_position(), {"loss": 1.5, "accuracy": 0.5}, 1e-3)
    reporter.close(done=True)
    (line,) = (tmp_path / "logs" / "progress.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert {key: record[key] for key in ("attempt", "epoch", "epochs", "step", "stepsPerEpoch", "loss")} == {
        "attempt": 2, "epoch": 2, "epochs": 4, "step": 5, "stepsPerEpoch": 10, "loss": 1.5,
    }  # fmt: skip
    assert (record["progress"], record["learningRate"]) == (0.125, 1e-3)
    assert record["samplesPerSecond"] == pytest.approx(2 * record["samplesPerSecondPerRank"], rel=1e-3)
    assert record["eta"] >= record["time"]
    assert log_lines[0].startswith("Epoch 2/4 5/10 loss 1.5000 accuracy 0.5000 ")


def test_nan_becomes_null_in_the_file_and_is_not_in_the_status(
    log_lines: list[str], tmp_path: Path, operator: OperatorServer, job_environment: dict[str, str]
) -> None:
    reporter = build_reporter(log_lines, tmp_path, environment=job_environment)
    reporter.report(training_position(), {"loss": math.nan, "accuracy": 0.1}, 1e-3)
    assert operator.wait_for_reports(1)[0][1]["metrics"] == {"accuracy": 0.1}
    reporter.close(done=False)
    text = (tmp_path / "progress.jsonl").read_text()
    assert "NaN" not in text
    assert json.loads(text)["loss"] is None


def test_a_metric_that_a_status_cannot_have_is_renamed_or_left_out_and_the_others_stay(
    log_lines: list[str], tmp_path: Path, operator: OperatorServer, job_environment: dict[str, str]
) -> None:
    reporter = build_reporter(log_lines, tmp_path, environment=job_environment)
    metrics = {"mAP@0.5 (val)": 0.5, "précision": 0.6, "准确率": 0.7, "precision/recall": 0.8, "loss": math.inf}
    metrics |= {"per class": 0.9, "per class/0": 0.9, "mAP@0_5 (val)": 0.1}
    reporter.report(training_position(640), metrics, 1e-3)
    reporter.close(done=False)
    report = operator.wait_for_reports(1)[0][1]
    named = {"mAP_0.5_val": 0.5, "precision": 0.6, "u51c6u786eu7387": 0.7, "precision/recall": 0.8, "per_class": 0.9}
    assert report["metrics"] == report["history"][0]["metrics"] == named | {"mAP_0_5_val": 0.1}
    assert report["nonFinite"] == report["history"][0]["nonFinite"] == ["loss"]
    (sentence,) = (line for line in log_lines if "in the status" in line)
    assert "metric 'mAP@0.5 (val)' is mAP_0.5_val in the status" in sentence


def test_of_forty_metrics_with_long_names_the_losses_and_the_newest_epochs_are_reported(
    log_lines: list[str], tmp_path: Path, operator: OperatorServer, job_environment: dict[str, str]
) -> None:
    reporter = build_reporter(log_lines, tmp_path, environment=job_environment)
    metrics = {f"{number:02}_" + 100 * "m": 0.123456789 for number in range(38)} | {"loss": 1.0, "val_loss": 2.0}
    for epoch in range(1, 31):
        reporter.report(replace(training_position(640), epoch=epoch), metrics, 1e-3)
    reporter.close(done=False)
    report = operator.reports[-1][1]
    assert len(json.dumps(report)) <= 65536
    assert (len(report["metrics"]), report["metrics"]["val_loss"]) == (32, 2.0)
    assert report["history"][-1]["epoch"] == 30


def test_without_the_package_tensorboard_one_line_says_so_and_the_reports_continue(
    log_lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    reporter = build_reporter(log_lines, tmp_path, tensorboard=tmp_path / "events")
    for _ in range(2):
        reporter.report(training_position(), {"loss": 1.0}, 1e-3)
    reporter.close(done=True)
    sentence = f"Training continues without TensorBoard files in {tmp_path / 'events'}: "
    assert [line for line in log_lines if "TensorBoard" in line] == [
        f"{sentence}the package tensorboard is not installed"
    ]
    assert len((tmp_path / "progress.jsonl").read_text().splitlines()) == 2


def test_files_that_cannot_be_written_are_logged_once_and_do_not_end_the_run(
    log_lines: list[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    reporter = build_reporter(log_lines, tmp_path / "file", tensorboard=tmp_path / "file" / "tensorboard")
    for _ in range(3):
        reporter.report(training_position(640), {"loss": 1.0}, 1e-3)
    reporter.close(done=True)
    assert len([line for line in log_lines if "continues without" in line and "progress.jsonl" in line]) == 1
    (line,) = [line for line in log_lines if "continues without TensorBoard" in line]
    assert "function_node" not in line


def test_a_full_disk_is_logged_once(log_lines: list[str], tmp_path: Path) -> None:
    reporter: Any = build_reporter(log_lines, tmp_path)
    reporter.lines.file.close()
    reporter.lines.file = open("/dev/full", "a", buffering=1)  # noqa: SIM115
    for _ in range(3):
        reporter.report(training_position(), {"loss": 1.0}, 1e-3)
    reporter.close(done=True)
    assert len([line for line in log_lines if "No space left" in line]) == 1
