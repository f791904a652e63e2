"""An elastic training: workers are added, removed, killed and cut off while it trains each epoch once."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from e2e.access import wait_for
from e2e.faults.links import set_link
from e2e.namespace import OWN_MODULES, SELDOM, SLOW_NETWORK, SLOWLY, Namespace, volume
from localcluster.settings import Cluster

RANK = "^python -m horovodjob_trainer --dataset"
TRAIN = [*SLOWLY, "--dir", "/data", "--epochs", "1000", "--commit-steps", "5", "--checkpoint-steps", "20"]
# Timeout of a rank that waits for an unreachable one; on a busy machine, a rank also starts slowly.
ENV = [
    SELDOM,
    OWN_MODULES,
    {"name": "HVD_STALL_SECONDS", "value": "8"},
    {"name": "HOROVOD_GLOO_TIMEOUT_SECONDS", "value": "60"},
]


class Training:
    """The job `learn`, and what it prints."""

    def __init__(self, namespace: Namespace, directory: Path) -> None:
        self.namespace = namespace
        status = namespace.wait_phase("learn", "Running")
        self._output = directory / "logs" / status["outputPathSegment"] / "stdouterr" / "stdout.txt"

    def output(self) -> str:
        return self._output.read_text() if self._output.exists() else ""

    def epochs(self) -> list[int]:
        """The epochs in the order in which they ended.

        A resume from the checkpoint of an epoch, which is written before the validation, repeats the validation.
        """
        lines = re.findall(r"Epoch (\d+)/1000 \d+/\d+ .*val_loss", self.output())
        return [int(epoch) for epoch, _ in itertools.groupby(lines)]

    def wait_progress(self) -> None:
        """Waits until the training continues."""

        def progress() -> float:
            return float(self.namespace.status("learn").get("training", {}).get("progress") or 0)

        before = progress()
        self.namespace.wait("learn", "progress", lambda _: progress() > before)

    def wait_ranks(self, count: int, change: Callable[[], object] = lambda: None) -> None:
        """Waits until this many ranks train, after a change."""
        words = f"Training with {count} rank"
        before = self.output().count(words)
        change()
        wait_for(f"{count} ranks", lambda: self.output().count(words) > before)
        self.wait_progress()

    def scale(self, replicas: int) -> None:
        self.namespace.kubectl("scale", "hvj/learn", "-n", self.namespace.name, f"--replicas={replicas}")


def test_killed_ranks_and_unreachable_workers_rejoin_and_no_epoch_is_lost(
    namespace: Namespace, local: Cluster, shared_directory: Callable[[str], Path]
) -> None:
    directory = shared_directory(namespace.name)
    shutil.copy(SLOW_NETWORK, directory)
    volumes, mounts = volume(namespace, directory)
    shared = {"volumes": volumes, "volumeMounts": mounts, "logs": {"pathPrefix": "/data/logs"}}
    # A retry of a host that is still unreachable ends the attempt, so the cooldown is long.
    elastic = {"cooldownSeconds": [15, 20]}
    namespace.apply(namespace.job("learn", TRAIN, elastic=elastic, env=ENV, **shared))
    learn = Training(namespace, directory)
    wait_for("one rank", lambda: "Training with 1 rank " in learn.output())
    learn.wait_progress()
    namespace.stalled.add("learn")
    namespace.exec("learn-worker-0", "pkill", "-STOP", "-f", RANK)
    stalled = namespace.wait_progressing("learn", "TrainingStalled")
    sentence = r"no step since \S+ \(usual: \S+ s\): rank 0 \(worker 0, node \S+\) is stopped"
    assert re.fullmatch(sentence, stalled), stalled
    learn.scale(2)
    wait_for("the other host", lambda: namespace.log("learn-launcher").count(" joins") == 1)
    assert "Training with 2 ranks " not in learn.output()
    assert namespace.condition("learn", "Progressing")["reason"] == "TrainingStalled"
    learn.wait_ranks(2, lambda: namespace.exec("learn-worker-0", "pkill", "-CONT", "-f", RANK))
    namespace.wait_progressing("learn", "StepsCompleted", "True")
    # The other worker then has rank 0: it is the only one that has the state, and reports it.
    learn.wait_ranks(2, lambda: namespace.delete_pod("learn-worker-0"))
    learn.wait_ranks(1, lambda: namespace.exec("learn-worker-0", "pkill", "-KILL", "-f", RANK))
    wait_for("both ranks", lambda: learn.output().rindex("with 2 ranks") > learn.output().rindex("with 1 rank "))
    learn.wait_ranks(1, lambda: set_link(namespace, local, "learn-worker-0", "down"))
    learn.wait_ranks(2, lambda: set_link(namespace, local, "learn-worker-0", "up"))
    learn.wait_ranks(1, lambda: learn.scale(1))
    wait_for("one worker", lambda: set(namespace.pods("learn")) == {"learn-launcher", "learn-worker-0"})
    status = namespace.status("learn")
    assert (status["attempt"], status["restarts"], status["preemptions"]) == (1, 0, 1)
    assert set(namespace.phases("learn")) <= {"Queued", "Starting", "Running"}
    reached = len(learn.epochs())
    namespace.change("learn", {"runPolicy": {"suspend": True}})
    namespace.wait("learn", "no pods", lambda s: s["phase"] == "Suspended" and not s["replicas"])
    namespace.change("learn", {"runPolicy": {"suspend": False}})
    namespace.wait_phase("learn", "Running")
    wait_for("an epoch more", lambda: len(learn.epochs()) > reached)
    assert learn.epochs() == list(range(1, len(learn.epochs()) + 1))
