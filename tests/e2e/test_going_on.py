"""A training that is suspended, and one whose worker is killed, goes on where it was."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from e2e.access import wait_for
from e2e.space import Space, volume

EPOCHS = 24


def test_a_training_outlives_a_suspension_and_the_loss_of_a_worker(
    space: Space, shared_directory: Callable[[str], Path]
) -> None:
    directory = shared_directory(space.name)
    volumes, mounts = volume(space, directory)
    train = ["python", "-m", "horovodjob_trainer", "--dataset", "digits", "--dir", "/data/out", "--threads", "1"]
    flags = ["--epochs", str(EPOCHS), "--checkpoint-steps", "10", "--keep-checkpoints", "3", "--log-seconds", "1"]
    shared = {"volumes": volumes, "volumeMounts": mounts, "logs": {"pathPrefix": "/data/logs"}}
    space.apply(space.job("steady", [*train, *flags], worker={"replicas": 2}, **shared))
    status = space.wait_phase("steady", "Running", seconds=120)
    logs = directory / "logs" / status["outputPathSegment"] / "stdouterr"

    def told(pattern: str) -> list[str]:
        return re.findall(pattern, (logs / "stdout.txt").read_text(), re.MULTILINE)

    def checkpoint_after(epoch: int) -> bool:
        return any(
            int(path.name.split("-")[1].split(".")[0]) >= epoch for path in directory.glob("out/checkpoint-*.h5")
        )

    wait_for("a checkpoint", lambda: checkpoint_after(2), 120)
    space.change("steady", {"runPolicy": {"suspend": True}})
    space.wait_phase("steady", "Suspended", seconds=60)
    wait_for("no pods", lambda: not space.pods("steady"), 60)
    (step,) = (int(number) for number in told(r"^SIGTERM: stopped after step (\d+),"))
    share = space.status("steady")["training"]["progress"]
    assert 0 < share < 1, "what was told before is still there"

    space.change("steady", {"runPolicy": {"suspend": False}})
    epoch, inside = divmod(step, 45)
    words = f"after epoch {epoch}" + (f" and {inside} step" if inside else "")
    wait_for("it to go on at that very step", lambda: told(rf"^Attempt \d: going on {words}"), 120)
    wait_for("some epochs more", lambda: checkpoint_after(epoch + 3), 120)
    space.delete_pod("steady-worker-1", seconds=0)
    wait_for("it to go on again", lambda: len(told(r"^Attempt \d: going on after epoch (\d+)")) == 2, 180)
    status = space.wait_phase("steady", "Succeeded", seconds=180)

    assert (status["training"]["percent"], status["training"]["epoch"], status["training"]["epochs"]) == (
        "100%",
        EPOCHS,
        EPOCHS,
    )
    assert status["training"]["metrics"]["val_accuracy"] > 0.95
    assert "100%" in space.kubectl("get", "hvj", "-n", space.name, "steady", "--no-headers").split()
    records = [json.loads(line) for line in (logs / "progress.jsonl").read_text().splitlines()]
    assert {record["attempt"] for record in records} >= {status["attempt"]}
    assert records[-1]["epoch"] == EPOCHS
    assert list((logs / "tensorboard").iterdir())
    assert (directory / "out/saved_models/keras_cifar10_trained_model.h5").exists()
