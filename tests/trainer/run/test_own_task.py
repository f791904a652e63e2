"""Tasks of one's own: data, model, loss and metrics from functions of the user, in the worked examples."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]


def example(name: str) -> list[str]:
    """The settings of the trainer in the manifest of this example, without its directory."""
    job = yaml.safe_load((ROOT / "manifests/examples" / f"{name}.yaml").read_text())
    command: list[str] = job["spec"]["command"]
    assert command[:3] == ["python", "-m", "horovodjob_trainer"]
    return [flag for flag in command[3:] if not flag.startswith(("--dir=", "--epochs="))]


def epoch(directory: Path) -> Any:
    """The metrics of the last line of progress.jsonl."""
    return json.loads((directory / "progress.jsonl").read_text().splitlines()[-1])["metrics"]


def test_a_segmentation_learns_shapes_and_is_evaluated(run: Any, trainer: Any, tmp_path: Path) -> None:
    flags = ("--dir", tmp_path, "--tensorboard", "none", "--threads", 1, "--epochs", 1)
    ended = run(1, trainer(*example("segmentation"), *flags))
    assert ended.code == 0, ended.stderr
    metrics = epoch(tmp_path)
    assert metrics["val_mean_io_u"] > 0.4
    assert f"The best epoch is 1 with val_mean_io_u {metrics['val_mean_io_u']:.4f}" in ended.stdout

    model = tmp_path / "saved_models/segmentation-best.keras"
    names = ("--data=", "--task=")
    selected = [flag for flag in example("segmentation") if flag.startswith(names)]
    evaluated = run(1, trainer("evaluate", "--model", model, *selected, "--json"))
    assert evaluated.code == 0, evaluated.stderr
    assert json.loads(evaluated.stdout)["mean_io_u"] == pytest.approx(metrics["val_mean_io_u"], abs=1e-4)
