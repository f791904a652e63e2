"""Progress reports of the program, and of a script with the callback, with two ranks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.reporting.operator_server import OperatorServer

OWN_MODEL = """
import keras

def build(shape, classes):
    return keras.Sequential([keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(classes, "softmax")])
"""
METRICS = {"loss", "accuracy", "top_5_accuracy", "val_loss", "val_accuracy", "val_top_5_accuracy"}
OWN_SCRIPT = """
import keras, numpy as np
import horovodjob_trainer.hvd as hvd
from horovodjob_trainer.callbacks import ProgressCallback

hvd.init()
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse", metrics=["mae", keras.metrics.F1Score()])
progress = ProgressCallback(batch_size=8, monitor="own", mode="max")
model.fit(np.ones((64, 4)), np.ones((64, 2)), batch_size=8, epochs=3, verbose=0, callbacks=[progress])
"""

KEPT_SCRIPT = """
import sys
import keras, numpy as np, tensorflow as tf
import horovodjob_trainer.hvd as hvd

hvd.init()

def dice(truth, prediction):
    return keras.ops.mean(truth * prediction)

def own(truth, prediction):
    return keras.ops.mean(prediction)

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse", metrics=["mae", dice, own])
ones = np.ones((64, 4), "float32")
data = tf.data.Dataset.from_tensor_slices((ones, ones[:, :1])).batch(8)
stopping = keras.callbacks.EarlyStopping("val_dice", mode="max", patience=9)
kept = hvd.RunCallback(sys.argv[1], monitor="val_own", mode="min")
model.fit(data, epochs=3, verbose=0, validation_data=data, callbacks=[stopping, kept])
"""


def test_a_script_that_keeps_its_run_declares_its_best_values(
    run: Callable[..., Any], preloaded_python: list[str], operator: OperatorServer, token: Path, tmp_path: Path
) -> None:
    variables = {"HOROVODJOB_PROGRESS_URL": operator.url, "HOROVODJOB_PROGRESS_TOKEN_FILE": str(token)}
    ended = run(1, [*preloaded_python, "-c", KEPT_SCRIPT, str(tmp_path)], variables)
    assert ended.code == 0, ended.stderr
    last = operator.reports[-1][1]
    declared = {"loss": "min", "mae": "min", "val_loss": "min", "val_mae": "min"}
    assert last["modes"] == declared | {"val_dice": "max", "val_own": "min"}
    assert last["monitor"] == "val_own"
    value, first = min((epoch["metrics"]["val_mae"], epoch["epoch"]) for epoch in last["history"])
    assert last["extremes"]["val_mae"]["min"] == {"value": value, "epoch": first}


def test_a_script_with_the_callback_reports_as_the_program_does(
    run: Callable[..., Any], preloaded_python: list[str], operator: OperatorServer, token: Path, tmp_path: Path
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
    assert [epoch["epoch"] for epoch in last["history"]] == [1, 2, 3]
    assert {tuple(epoch["metrics"]) for epoch in last["history"]} == {("f1_score", "loss", "mae")}
    modes = {"f1_score": "max", "loss": "min", "mae": "min", "own": "max"}
    assert (last["monitor"], last["modes"]) == ("own", modes)
    assert [epoch["learningRate"] for epoch in last["history"]] == pytest.approx([0.1] * 3)
    assert [line.split()[1] for line in ended.stdout.splitlines() if " 8/8 " in line] == ["1/3", "2/3", "3/3"]
    records = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert records[-1]["progress"] == 1.0
    metrics = records[-1]["metrics"]
    assert metrics["f1_score"] == pytest.approx((metrics["f1_score/0"] + metrics["f1_score/1"]) / 2)


def test_a_run_reports_to_the_operator_and_writes_beside_the_logs_of_the_job(
    run: Callable[..., Any], trainer: Callable[..., list[str]], operator: OperatorServer, token: Path, tmp_path: Path
) -> None:
    import tensorflow as tf

    (tmp_path / "own.py").write_text(OWN_MODEL)
    flags = ("--dataset", "digits", "--model", "own:build", "--dir", tmp_path, "--epochs", 2, "--batch-size", 64,
             "--threads", 1, "--log-seconds", 0.2, "--no-augment")  # fmt: skip
    variables = {
        "PYTHONPATH": str(tmp_path),
        "HOROVODJOB_PROGRESS_URL": operator.url,
        "HOROVODJOB_PROGRESS_TOKEN_FILE": str(token),
        "AZ_BATCHAI_STDOUTERR_DIR": str(tmp_path / "logs"),
    }
    token.write_text("secret-token")
    ended = run(2, trainer(*flags), variables)
    assert ended.code == 0, ended.stderr
    last = operator.reports[-1][1]
    assert (last["progress"], last["epoch"], last["epochs"], last["step"], last["stepsPerEpoch"]) == (1.0, 2, 2, 11, 11)
    assert set(last) == {
        "attempt", "epoch", "epochs", "step", "stepsPerEpoch", "progress", "samplesPerSecond", "eta", "metrics",
        "history", "monitor", "modes", "extremes",
    }  # fmt: skip
    assert last["metrics"].keys() == METRICS
    assert [(epoch["epoch"], epoch["metrics"].keys()) for epoch in last["history"]] == [(1, METRICS), (2, METRICS)]
    assert last["monitor"] == "val_loss"
    assert last["modes"] == {name: "min" if name.endswith("loss") else "max" for name in METRICS}
    for name, ends in last["extremes"].items():
        values = [(epoch["metrics"][name], epoch["epoch"]) for epoch in last["history"]]
        assert (ends["min"]["value"], ends["max"]["value"]) == (min(values)[0], max(values)[0])
        assert (ends["min"]["value"], ends["min"]["epoch"]) in values
    assert all(authorization == "Bearer secret-token" for authorization, _ in operator.reports)
    assert "secret-token" not in ended.stdout + ended.stderr

    records = [json.loads(line) for line in (tmp_path / "logs" / "progress.jsonl").read_text().splitlines()]
    assert [record["progress"] for record in records] == sorted(record["progress"] for record in records)
    assert records[-1]["metrics"].keys() == METRICS
    tags = set()
    for path in (tmp_path / "logs" / "tensorboard").iterdir():
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            tags |= {value.tag for value in event.summary.value}
    assert {"loss", "val_accuracy", "learning_rate", "images_per_second"} <= tags
