"""The trained models on a volume that refuses them at first."""

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer.support.background_job import Job

OWN = """
import errno, os, pathlib, types
import keras
from horovodjob_trainer.run import saved_models

if "WITHOUT_DELAY" in os.environ:  # time passes only while the trainer waits for its next try
    clock = types.SimpleNamespace(now=0.0)
    def sleep(seconds):
        clock.now += seconds
    saved_models.time = types.SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep)

REFUSES = pathlib.Path(__file__).with_name("refuses")

class Refused(keras.Sequential):
    def save(self, path, **others):
        if "saved_models" in str(path) and REFUSES.exists():
            REFUSES.with_name("refused").touch()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().save(path, **others)

def build(shape, classes):
    return Refused([keras.Input(shape), keras.layers.Dense(classes, "softmax")])
"""


@pytest.fixture
def command(trainer: Callable[..., list[str]], tmp_path: Path) -> Callable[..., list[str]]:
    random = np.random.default_rng(1)
    np.savez(tmp_path / "data.npz", x=random.random((200, 4)).astype(np.float32), y=random.integers(0, 3, 200))
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "refuses").touch()
    flags = ("--dataset", "npz", "--data", tmp_path / "data.npz", "--model", "own:build", "--epochs", 4, "--threads", 1,
             "--tensorboard", "none", "--dir", tmp_path / "out", "--grace-seconds", 120)  # fmt: skip
    return lambda *others: trainer(*flags, *others)


def test_models_that_cannot_be_saved_end_the_attempt_and_the_next_one_saves_them_after_sigterm(
    start: Callable[..., Job], run: Callable[..., Any], command: Any, tmp_path: Path
) -> None:
    environment, models = {"PYTHONPATH": str(tmp_path)}, tmp_path / "out/saved_models"
    ended = run(1, command("--checkpoint-failure-seconds", 9), environment | {"WITHOUT_DELAY": "1"})
    assert ended.code == 1
    assert ended.stdout.count("; it tries again in 3 s") == 3
    (sentence,) = ended.errors
    assert "cannot save the trained model in " in sentence
    assert "because the volume is full" in ended.stdout
    assert not list(models.glob("*.keras"))
    assert re.search(r"^Epoch 4/4 .* [0-9]+ samples/s$", ended.stdout, re.MULTILINE)
    assert "images/s" not in ended.stdout

    (tmp_path / "refused").unlink()
    job = start(command(), 2, environment)
    job.wait_for("refused")
    job.send_signal(1, signal.SIGTERM)
    job.send_signal(0, signal.SIGTERM)
    (tmp_path / "refuses").unlink()
    code, output = job.ended()
    assert code == 0, output
    assert (models / "keras_npz_trained_model.keras").exists()
