"""An elastic training: each epoch is counted once while workers are added, also in a stall, and removed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

from e2e.access import wait_for
from e2e.namespace import RARELY, Namespace, volume

RANK = "^python -m horovodjob_trainer --dataset"
SOON = {"name": "HVD_STALL_SECONDS", "value": "8"}


def test_the_trainer_loses_no_epoch_when_workers_are_added_and_removed(
    namespace: Namespace, shared_directory: Callable[[str], Path]
) -> None:
    directory = shared_directory(namespace.name)
    volumes, mounts = volume(namespace, directory)
    train = ["python", "-m", "horovodjob_trainer", "--dataset", "digits", "--dir", "/data", "--threads", "1"]
    train += ["--epochs", "1000", "--commit-steps", "5", "--checkpoint-steps", "20", "--log-seconds", "1"]
    shared = {"volumes": volumes, "volumeMounts": mounts, "logs": {"pathPrefix": "/data/logs"}}
    namespace.apply(namespace.job("learn", train, elastic={}, env=[RARELY, SOON], **shared))
    status = namespace.wait_phase("learn", "Running")
    output = directory / "logs" / status["outputPathSegment"] / "stdouterr" / "stdout.txt"

    def output_lines() -> str:
        return output.read_text() if output.exists() else ""

    def epochs() -> list[int]:
        # A resume from the checkpoint of an epoch, which is written before the validation, repeats the validation.
        lines = re.findall(r"Epoch (\d+)/1000 \d+/\d+ .*val_loss", output_lines())
        return [int(epoch) for epoch, _ in itertools.groupby(lines)]

    def progress() -> float:
        return float(namespace.status("learn").get("training", {}).get("progress") or 0)

    def wait_for_progress() -> None:
        before = progress()
        namespace.wait("learn", "progress", lambda _: progress() > before)

    wait_for("one rank", lambda: "Training with 1 rank " in output_lines())
    wait_for_progress()
    namespace.stalled.add("learn")
    namespace.exec("learn-worker-0", "pkill", "-STOP", "-f", RANK)
    stalled = namespace.wait_progressing("learn", "TrainingStalled")
    assert re.fullmatch(r"no step since \S+ \(usual: \S+ s\): rank 0 \(worker 0, node \S+\) is stopped", stalled), (
        stalled
    )
    namespace.kubectl("scale", "hvj/learn", "-n", namespace.name, "--replicas=2")
    wait_for("the other host", lambda: namespace.log("learn-launcher").count(" joins") == 1)
    assert "Training with 2 ranks " not in output_lines()
    assert namespace.condition("learn", "Progressing")["reason"] == "TrainingStalled"
    namespace.exec("learn-worker-0", "pkill", "-CONT", "-f", RANK)
    wait_for("two ranks", lambda: "Training with 2 ranks " in output_lines())
    wait_for_progress()
    namespace.wait_progressing("learn", "StepsCompleted", "True")
    assert (namespace.status("learn")["attempt"], namespace.status("learn").get("errors", [])) == (1, [])
    # The other worker now has rank 0: it is the only one that has the state, and reports it.
    namespace.delete_pod("learn-worker-0")
    wait_for_progress()
    wait_for("an epoch", epochs)
    reached = len(epochs())
    namespace.change("learn", {"runPolicy": {"suspend": True}})
    namespace.wait("learn", "no pods", lambda s: s["phase"] == "Suspended" and not s["replicas"])
    namespace.change("learn", {"runPolicy": {"suspend": False}})
    namespace.wait_phase("learn", "Running")
    wait_for("two epochs more", lambda: len(epochs()) >= reached + 2)
    assert epochs() == list(range(1, len(epochs()) + 1))
