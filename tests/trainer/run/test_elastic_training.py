"""Elastic training with a real `horovodrun`: it grows, survives the kill of a host, and completes."""

import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from trainer.support.waiting import TIMEOUT_SECONDS

EPOCHS, TRIES = 3, 3
# Each step takes a while, in which ranks can join.
OWN = """
import os
import pathlib
import time
import keras
import tensorflow as tf


def wait(inputs):
    time.sleep(0.1)
    return inputs


class Slow(keras.layers.Layer):
    def call(self, inputs, training=False):
        if not training:
            return inputs
        outputs = tf.numpy_function(wait, [inputs], tf.float32)
        outputs.set_shape(inputs.shape)
        return outputs


def build(shape, classes):
    with pathlib.Path(os.environ["TEST_DIRECTORY"], "ranks").open("a") as ranks:
        ranks.write(f"{os.getpid()}\\n")
    layers = [Slow(), keras.layers.Flatten(), keras.layers.Dropout(0.1), keras.layers.Dense(classes, "softmax")]
    return keras.Sequential([keras.Input(shape), *layers])
"""
# Gloo can take the remaining data of a failed collective for the next one and then aborts the process.
GLOO_ENDED = "terminate called after throwing an instance of 'gloo::EnforceNotMet'"


def run_with_changes(horovodrun: Any, trainer: list[str], directory: Path) -> tuple[int, str]:
    """Exit code and output of a run of the trainer in this directory."""
    hosts = directory / "hosts"
    hosts.write_text("localhost:1\n")
    (directory / "own.py").write_text(OWN)
    flags = ("--dir", directory / "out", "--threads", 1, "--log-seconds", 0.5, "--commit-steps", 5, "--no-augment")
    command = [*trainer, "--model", "own:build", "--epochs", str(EPOCHS), *map(str, flags)]
    with horovodrun(directory, ["env", f"PYTHONPATH={directory}", *command]) as process:

        def wait_for(claim: Callable[[str], Any]) -> None:
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while not claim((directory / "log").read_text()):
                assert process.poll() is None, (directory / "log").read_text()
                assert time.monotonic() < deadline, (directory / "log").read_text()
                time.sleep(0.1)

        wait_for(lambda text: "Epoch 1/3 " in text)
        hosts.write_text("localhost:1\n127.0.0.1:1\n")
        wait_for(lambda text: re.search(r"/2[23] ", text))  # half the steps, as there are two ranks
        kill_between_messages(*map(int, dict.fromkeys((directory / "ranks").read_text().split())))
        hosts.write_text("localhost:1\n")
        process.wait(TIMEOUT_SECONDS)
    return process.returncode, (directory / "log").read_text()


def kill_between_messages(survivor: int, rank: int) -> None:
    """Kill a rank after the survivor has read all its data, so that Gloo rarely aborts."""
    os.kill(rank, signal.SIGSTOP)
    deadline, before = time.monotonic() + TIMEOUT_SECONDS, None
    while before != (before := activity(survivor)):
        assert time.monotonic() < deadline, before
        time.sleep(0.5)
    os.kill(rank, signal.SIGKILL)


def activity(pid: int) -> tuple[list[str], list[str]]:
    """Processor time of a process and the queues of its connections, which change while it trains."""
    process, inodes, times, connections = Path(f"/proc/{pid}"), set(), [""], []
    with suppress(FileNotFoundError):  # it has ended
        times = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
        tables = [(process / "net" / name).read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
        connections = [line.split() for table in tables for line in table]
        for descriptor in (process / "fd").iterdir():
            with suppress(FileNotFoundError):  # closed since
                inodes.add(os.readlink(descriptor).removeprefix("socket:[").removesuffix("]"))
    return times, [connection[4] for connection in connections if connection[9] in inodes]


def test_a_second_rank_joins_and_is_killed_and_no_epoch_is_lost(
    horovodrun: Any,
    trainer: Callable[..., list[str]],
    documented_horovodrun: tuple[list[str], list[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    for _ in range(TRIES):
        directory = tmp_path_factory.mktemp("elastic")
        code, log = run_with_changes(horovodrun, trainer(*documented_horovodrun[1]), directory)
        if GLOO_ENDED not in log:
            break
    assert code == 0, log
    assert (directory / "out/saved_models/keras_digits_trained_model.keras").exists()
    assert {path.name for path in (directory / "out").glob("checkpoint-*")} == {
        f"checkpoint-{epoch}.h5" for epoch in range(1, EPOCHS + 1)
    }
    changes = re.findall(r"Training with (\d) ranks? after step (\d+)", log)
    assert [ranks for ranks, _ in changes] == ["1", "2", "1"]
    assert int(changes[2][1]) >= int(changes[1][1])
    epochs = [int(epoch) for epoch in re.findall(r"Epoch (\d)/3 \d+/\d+ .*val_loss", log)]
    assert epochs == [1, 2, 3]
    (accuracy,) = re.findall(r"Test accuracy: ([0-9.]+)", log)
    assert float(accuracy) > 0.8
