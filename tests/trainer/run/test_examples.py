"""The commands of examples of jobs, with data that is made here."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

EXAMPLES = Path(__file__).parents[3] / "manifests" / "examples"


@pytest.fixture
def train(run: Callable[..., Any], trainer: Callable[..., list[str]], tmp_path: Path) -> Callable[..., Any]:
    """Runs the command of an example on two ranks, with the directory of the test as /data, and shorter."""

    def ended(name: str, *flags: object, **variables: str) -> Any:
        spec = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())["spec"]
        assert spec["command"][:3] == ["python", "-m", "horovodjob_trainer"]
        output = tmp_path / "output"
        words = [
            word.replace("/data", str(tmp_path)).replace("$(AZ_BATCHAI_OUTPUT_model)", str(output))
            for word in spec["command"][3:]
        ]
        env = {each["name"]: each["value"].replace("/data", str(tmp_path)) for each in spec.get("env", ())}
        done = run(2, trainer(*words, "--tensorboard", "none", "--threads", 1, *flags), env | variables)
        assert done.code == 0, done.stderr
        return done

    return ended


def draw(folder: Path, *classes: str) -> None:
    """Images of noise with a brightness for each class."""
    random = np.random.default_rng(1)
    for part, count in (("train", 8), ("test", 4)):
        for level, name in enumerate(classes):
            (folder / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = random.integers(80 * level, 80 * level + 60, (64, 64, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / part / name / f"{number}.jpg")


def test_a_network_for_images_of_ones_own_is_tuned_for_other_classes(train: Callable[..., Any], tmp_path: Path) -> None:
    draw(tmp_path / "pets", "ant", "bee")
    draw(tmp_path / "flowers", "aster", "lily", "rose")
    assert "Test accuracy: " in train("images", "--epochs", 1).stdout
    tuned = train("fine-tuning", "--epochs", 1)
    assert "which has another shape and keeps its random weights" in tuned.stdout
    assert (tmp_path / "flowers-head" / "saved_models" / "flowers-best.keras").is_file()


def test_a_table_is_read_by_the_functions_beside_it(train: Callable[..., Any], tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "tabular", tmp_path / "tabular")
    train("tabular", "--epochs", 3)
    lines = (tmp_path / "output" / "progress.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["metrics"]["val_loss"] < json.loads(lines[0])["metrics"]["val_loss"]


def test_the_settings_of_the_elastic_example_train(train: Callable[..., Any], tmp_path: Path) -> None:
    train("elastic", "--max-steps", 2)
    assert (tmp_path / "output" / "saved_models").is_dir()


def test_the_program_in_c_passes_a_number_around(run: Callable[..., Any], tmp_path: Path) -> None:
    subprocess.run(["mpicc", "-o", tmp_path / "ring", EXAMPLES / "mpi-c" / "ring.c"], check=True)
    done = run(4, [str(tmp_path / "ring")])
    assert (done.code, done.stdout) == (0, "the sum of 4 ranks is 6\n")
