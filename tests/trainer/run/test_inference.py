"""`predict` and `evaluate`: the results of Keras on any number of ranks, or an error in one sentence."""

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.api_client import ROOT
from support.tutorial import page
from trainer.support import foreign_models
from trainer.support.waiting import TIMEOUT_SECONDS

PAGES = ROOT / "docs"


@dataclass(frozen=True, slots=True)
class Ended:
    """A command's exit code, the lines it printed, and what it wrote to stderr."""

    code: int
    lines: list[str]
    errors: str


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, folders: Any, picture: Any) -> Path:
    """Untrained models, and images."""
    import keras

    from horovodjob_trainer import models

    root = tmp_path_factory.mktemp("inference")
    keras.utils.set_random_seed(3)
    model = models.build_model("tutorial", shape=(24, 24, 3), classes=3)
    loss = keras.losses.CategoricalCrossentropy(label_smoothing=0.1)  # for one-hot labels, which these data do not have
    model.compile("rmsprop", loss, metrics=["accuracy"])
    model.save(root / "model.keras")
    model.save(root / "model.h5")
    line = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
    line.compile("sgd", "mse", metrics=["mae"])
    line.save(root / "line.keras")
    line.save(root / "line.h5")
    folders(root / "pets", ant=9, bee=8, cat=8)
    (root / "loose" / "more").mkdir(parents=True)
    for number, name in enumerate(("b, c.png", "more/a.png")):
        (root / "loose" / name).write_bytes(picture(99 * number))
    np.savez(root / "new.npz", x=np.array([[1.0, 2.0], [3.0, 4.5]]))
    (root / "cut.h5").write_bytes((root / "model.h5").read_bytes()[:50_000])
    foreign_models.write(root, line)
    return root


PROGRAM = """
import json, os, sys
from horovodjob_trainer.run.inference import command as inference
for line in sys.stdin:
    sys.stdout.write(f"{inference.main(json.loads(line))}\\n--\\n")
    sys.stderr.write("--\\n")
"""
TENSORFLOW_VARIABLES = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}


@pytest.fixture(scope="module")
def ended(workspace: Path, preloaded_python: list[str], environment: dict[str, str]) -> Callable[..., list[Ended]]:
    """Runs commands one after the other in the directory of the models, in a single process."""

    def done(*commands: Sequence[str]) -> list[Ended]:
        lines = "".join(f"{json.dumps(command)}\n" for command in commands)
        found = subprocess.run(
            [*preloaded_python, "-c", PROGRAM], cwd=workspace, env=environment | TENSORFLOW_VARIABLES, input=lines,
            text=True,
            capture_output=True, timeout=TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
        assert found.returncode == 0, found.stderr
        outs, errors = found.stdout.split("--\n")[:-1], found.stderr.split("--\n")[:-1]
        return [
            Ended(int(out.splitlines()[-1]), out.splitlines()[:-1], error)
            for out, error in zip(outs, errors, strict=True)
        ]

    return done


FORMATS = ("h5", "keras")
PETS = ("--dataset", "images", "--data", "pets", "--validation-share", "0.5", "--seed", "4")


def keras_outputs(workspace: Path) -> tuple[Any, Any, Any]:
    import keras

    from horovodjob_trainer import data
    from horovodjob_trainer.run.pipeline import evaluation_batches

    request = data.Request(dataset="images", path=workspace / "pets", image_size=24, validation_share=0.5, seed=4)
    test = data.load_dataset(request).test
    model = keras.models.load_model(workspace / "model.keras", compile=False)
    ((_, examples, labels),) = evaluation_batches(test, batch=test.samples)
    return np.asarray(model(np.asarray(examples) / np.float32(255))), np.asarray(labels), test


def test_two_ranks_compute_the_metrics_of_keras(workspace: Path, run: Any, trainer: Any) -> None:
    outputs, labels, _ = keras_outputs(workspace)
    arguments = ["evaluate", "--model", str(workspace / "model.h5"), *PETS, "--json"]
    arguments[arguments.index("pets")] = str(workspace / "pets")
    ended = run(2, trainer(*arguments))
    assert ended.code == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["samples"] == len(labels) == 12
    np.testing.assert_allclose(found["loss"], -np.log(outputs[np.arange(12), labels]).mean(), rtol=1e-5)
    np.testing.assert_allclose(found["accuracy"], (outputs.argmax(axis=1) == labels).mean(), rtol=1e-6)


def test_predictions_contain_file_class_and_probability(workspace: Path, ended: Any) -> None:
    outputs, _, test = keras_outputs(workspace)
    pets, loose, numbers = ended(
        ["predict", "--model", "model.keras", *PETS, "--output", "out.jsonl", "--batch-size", "5"],
        ["predict", "--model", "model.h5", "--data", "loose"],
        ["predict", "--model", "line.keras", "--data", "new.npz"],
    )
    assert (pets.code, pets.lines) == (0, []), pets.errors
    rows = [json.loads(line) for line in (workspace / "out.jsonl").read_text().splitlines()]
    assert [row["class"] for row in rows] == [("ant", "bee", "cat")[label] for label in outputs.argmax(axis=1)]
    assert [row["file"] for row in rows] == [str(Path(test.name(row)).relative_to(workspace)) for row in range(12)]
    np.testing.assert_allclose([row["probability"] for row in rows], outputs.max(axis=1), atol=2e-6)
    assert [json.loads(line)["file"] for line in loose.lines] == ["loose/b, c.png", "loose/more/a.png"], loose.errors
    assert numbers.lines == ['{"file": "0", "output": 3.0}', '{"file": "1", "output": 7.5}'], numbers.errors


PLAIN_TENSORFLOW = """
import sys
for hidden in ("keras", "horovod", "horovodjob_trainer"):
    sys.modules[hidden] = None
import numpy as np, tensorflow as tf
images = tf.constant(np.load("images.npy"))
outputs = tf.saved_model.load("serving/digits/1").signatures["serving_default"](input=images)
np.save("outputs.npy", outputs["output_0"])
"""


def test_an_exported_model_has_the_outputs_of_keras_without_keras(
    workspace: Path, ended: Any, run: Any, preloaded_python: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import keras
    from onnx.reference import ReferenceEvaluator

    images = np.random.default_rng(5).random((4, 24, 24, 3), np.float32)
    expected = keras.models.load_model(workspace / "model.keras", compile=False).predict(images, verbose=0)
    monkeypatch.chdir(workspace)
    Path("out/saved_models").mkdir(parents=True)
    shutil.copy("model.keras", "out/saved_models/digits.keras")
    documented = page.commands(PAGES / "serving.md")
    program = "python -m horovodjob_trainer "
    assert [command.startswith(program) for command in documented] == [True, True]
    saved_model, onnx, again, of_h5, short_loss_name = ended(
        *(command.removeprefix(program).split() for command in documented),
        documented[0].removeprefix(program).split(),
        ["export", "--model", "model.h5", "--output", "model.onnx"],
        ["export", "--model", "line.h5", "--output", "line/1"],  # keras.models.load_model cannot compile it
    )
    assert saved_model.lines == ["Exported the model as saved-model at serving/digits/1"], saved_model.errors
    np.save("images.npy", images)
    loaded = run(1, [*preloaded_python, "-c", PLAIN_TENSORFLOW])
    assert loaded.code == 0, loaded.stderr
    np.testing.assert_array_equal(np.load("outputs.npy"), expected)
    assert (onnx.code, of_h5.code) == (0, 0), onnx.errors
    for name in ("serving/digits.onnx", "model.onnx"):
        reference: Any = ReferenceEvaluator(name).run(None, {"input": images})
        np.testing.assert_allclose(reference[0], expected, atol=1e-6)
    assert (again.code, short_loss_name.code) == (1, 0)
    assert "serving/digits/1 cannot be written: Directory not empty; use another --output" in again.errors
    assert [path.name for path in Path("serving/digits").iterdir()] == ["1"]


INVALID = {
    "export --model model.keras": (2, "the following arguments are required: --output"),
    "export --model model.keras --output cut.h5/1": (1, "cut.h5/1 cannot be written: "),
    "export --model model.keras --output x --format tflite": (2, "'tflite' is none of saved-model, onnx"),
    "predict --model model.keras": (2, "predict needs --data"),
    "evaluate --model model.keras --dataset npz": (2, "--dataset npz needs --data"),
    "evaluate --model none.keras --dataset digits": (1, "none.keras does not exist"),
    "evaluate --model cut.h5 --dataset digits": (1, "cut.h5 cannot be loaded as a Keras model"),
    "evaluate --model model.keras --dataset digits": (1, "the model requires examples of shape (24, 24, 3)"),
    "evaluate --model model.keras --dataset images --data many": (1, "the model has 3 classes"),
    "predict --model model.keras --data empty": (1, "empty does not exist"),
    "predict --model model.keras --data model.h5": (1, "model.h5 cannot be read: it is not a complete JPEG"),
    "predict --model line.keras --data new.npz --output no/x": (1, "no/x cannot be written"),
    "predict --model line.keras --data new.npz --output x.csv": (2, "x.csv: predictions are lines of JSON"),
}


LAMBDA, NOT_LOADED = "has a Lambda layer, whose code in the file is not run", "cannot be loaded as a Keras model: "
ATTACKS = {
    "predict --model lambda.keras --data new.npz": (1, f"lambda.keras {LAMBDA}"),
    "evaluate --model lambda.h5 --dataset digits": (1, f"lambda.h5 {LAMBDA}"),
    "export --model lambda.keras --output x": (1, f"lambda.keras {LAMBDA}"),
} | {
    f"predict --model {name} --data new.npz": (1, f"{name} {NOT_LOADED}")
    for name in ("imports.keras", *(f"{kind}.{suffix}" for kind in foreign_models.ELSEWHERE for suffix in FORMATS))
}


def test_invalid_commands_end_with_one_sentence_and_models_of_somebody_else_run_no_code_and_read_no_other_file(
    workspace: Path, ended: Any, folders: Any
) -> None:
    folders(workspace / "many", a=2, b=2, c=2, d=2)
    expected = INVALID | ATTACKS
    for found, (code, what) in zip(ended(*map(str.split, expected)), expected.values(), strict=True):
        complaints = [line for line in found.errors.splitlines() if line.startswith("horovodjob_trainer: ")]
        assert (found.code, len(complaints), found.lines) == (code, 1, []), found.errors
        assert what in complaints[0]
        assert "Traceback" not in found.errors
    assert not (workspace / foreign_models.EXECUTED).exists()
