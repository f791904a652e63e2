"""The training script of Microsoft's tutorial, unchanged, as the job of the example manifest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from e2e.namespace import RARELY, Namespace, volume

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "manifests" / "examples" / "tutorial-script.yaml"
SCRIPT = ROOT / "tests" / "trainer" / "compat" / "tutorial" / "cifar_cnn_distributed.py"
FILES = {"checkpoint-1.h5", "saved_models/keras_cifar10_trained_model.h5"}


def test_the_script_of_the_tutorial_writes_checkpoints_and_model_to_the_share(
    namespace: Namespace, shared_directory: Callable[[str], Path]
) -> None:
    import h5py  # not part of the environment that the other tests need

    share = shared_directory(namespace.name)
    volume(namespace, share)
    directory = share / "cifar"
    directory.mkdir()
    shutil.chown(directory, share.stat().st_uid, share.stat().st_gid)
    shutil.copy(SCRIPT, directory)
    namespace.apply(_example(namespace))
    namespace.wait_phase("cifar-distributed", "Running")
    status = namespace.wait_phase("cifar-distributed", "Succeeded")

    found = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.suffix in (".h5", ".py")}
    assert found == {*FILES, SCRIPT.name}
    for name in FILES:
        with h5py.File(directory / name) as file:
            assert {"model_weights", "optimizer_weights"} <= file.keys()
    logs = directory / status["outputPathSegment"] / "stdouterr"
    assert (logs / "stdout.txt").read_text().count("Test accuracy: ") == 2, "each rank prints, as the script says"
    for repair in ("never passes 'callbacks'", "lets every rank write"):
        assert (logs / "stderr.txt").read_text().count(repair) == 1


def _example(namespace: Namespace) -> dict[str, Any]:
    """The example as a small job for this cluster: two workers without GPUs, and digits in place of a download."""
    job: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    spec = job["spec"]
    own = namespace.job(job["metadata"]["name"], worker={"replicas": 2})
    spec |= {name: own["spec"][name] for name in ("image", "worker", "launcher")}
    spec["volumes"][0]["persistentVolumeClaim"]["claimName"] = "data"
    spec["env"] += [
        {"name": "TRAINER_DATASET", "value": "digits"},
        {"name": "TRAINER_MAX_EPOCHS", "value": "1"},
        RARELY,
    ]
    job["metadata"]["namespace"] = namespace.name
    return job
