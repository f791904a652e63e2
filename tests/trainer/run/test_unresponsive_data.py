"""A share with the images that does not respond while ranks read them."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from trainer.support.arrays import array
from trainer.support.background_job import Job, stopped_step

EPOCHS = 6
GRACE_SECONDS = 120  # the checkpoint is written much earlier, also on a busy machine
OWN = """
import os
import pathlib
import time
import keras
import tensorflow as tf
from horovodjob_trainer.data.formats.image_folder import ImageFiles

content = ImageFiles.content

def recorded(source, row):
    with open(os.environ["READS"], "a") as reads:
        print(source.name(row), file=reads)
    return content(source, row)

class Slow(keras.layers.Layer):
    '''So slow that the run does not end before the test stops the share.'''

    def call(self, inputs, training=False):
        def wait(x):
            time.sleep(0.05)
            pathlib.Path(os.environ["STEPS"]).touch()
            return x
        if not training:
            return inputs
        outputs = tf.numpy_function(wait, [inputs], tf.float32)
        outputs.set_shape(inputs.shape)
        return outputs

def build(shape, classes):
    if "READS" in os.environ:
        ImageFiles.content = recorded
    layers = [keras.layers.Flatten(), Slow(), keras.layers.Dense(classes, "softmax", kernel_initializer="zeros")]
    return keras.Sequential([keras.Input(shape), *layers])
"""


def stop_share(folder: Path) -> None:
    """Let every read of an image wait without end: a pipe without a writer stands for it."""
    waiting = folder.with_name(".waiting")
    for path in folder.rglob("*.png"):
        pipe = waiting / path.relative_to(folder)
        pipe.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(pipe)
    folder.rename(folder.with_name(".hidden"))
    waiting.rename(folder)


def continue_share(folder: Path) -> None:
    """Let the images be read again."""
    folder.rename(folder.with_name(".waiting"))
    folder.with_name(".hidden").rename(folder)


def test_sigterm_ends_ranks_that_wait_for_images_in_a_checkpoint_from_which_the_run_continues(
    start: Callable[..., Job],
    run: Callable[..., Any],
    trainer: Callable[..., list[str]],
    folders: Callable[..., Path],
    tmp_path: Path,
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    data = tmp_path / "data"
    shared = folders(data / "train", ant=40, bee=40)
    folders(data / "test", ant=2, bee=2)
    steps = tmp_path / "steps"
    ranks, variables = 2, {"PYTHONPATH": str(tmp_path), "STEPS": str(steps)}

    def command(name: str, ranks: int) -> list[str]:
        images = ("--dataset", "images", "--data", data, "--image-size", 16, "--cache", "none")
        output = ("--dir", tmp_path / name, "--tensorboard", "none", "--grace-seconds", GRACE_SECONDS)
        training = ("--optimizer", "adam", "--batch-size", 8 // ranks, "--epochs", EPOCHS, "--threads", 1,
                    "--learning-rate-scaling", "none")  # fmt: skip
        return trainer(*images, "--model", "own:build", *training, *output)

    job = start(command("stopped", ranks), ranks, variables)
    job.wait_for("stopped/checkpoint-*.h5")
    stop_share(shared)
    while time.time() - steps.stat().st_mtime < 5:  # there are batches that were read before
        time.sleep(0.1)
    stopped = time.monotonic()
    for rank in reversed(range(ranks)):
        job.send_signal(rank, signal.SIGTERM)
    code, output = job.ended()
    assert code == 128 + signal.SIGTERM, output
    assert time.monotonic() - stopped < GRACE_SECONDS
    assert "The data does not respond: after SIGTERM, the next batch is missing on rank " in output, output
    assert stopped_step(output)
    continue_share(shared)
    ended = run(ranks, command("stopped", ranks), variables)
    assert ended.code == 0, ended.stderr
    assert "resuming after epoch " in ended.stdout
    reads = tmp_path / "reads"
    assert run(1, command("whole", 1), variables | {"READS": str(reads)}).code == 0
    # A process that still reads from a share that does not respond would not end.
    assert reads.read_text().count("/train/") == EPOCHS * 80, "no image is read for a step after the last"
    resumed, whole = (tmp_path / name / "saved_models/keras_images_trained_model.h5" for name in ("stopped", "whole"))
    np.testing.assert_allclose(array(resumed, "kernel"), array(whole, "kernel"), atol=1e-6)
