"""Examples of trainings on the claim of the examples: data in, the job, model out, as their first lines say."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from e2e.examples import COMMAND, EXAMPLES, Examples
from e2e.install import ROOT, Target
from e2e.namespace import RARELY, SLEEPING, Namespace
from support.tutorial import page
from support.waiting_ranks import sleeping_library

# Each row runs one after the other: fine-tuning reads what the example before it has written.
ROWS = (("elastic", "text"), ("images", "fine-tuning", "script"), ("tabular", "segmentation"))
# All steps of these take minutes; the elastic one must still run when its third worker comes.
STEPS = {"elastic": 100, "images": 8, "fine-tuning": 8, "segmentation": 2, "tabular": 20, "text": 2}
# The node of the tests has two CPUs.
REQUESTS = ("requests: {cpu: 500m,", "requests: {cpu: 100m,")
MODELS = {
    "elastic": "elastic-model/saved_models/keras_digits_trained_model.keras",
    "fine-tuning": "flowers-models/flowers-best.keras",
    "images": "pets-models/pets-best.keras",
    "script": "output/model.keras",
    "segmentation": "segmentation-models/segmentation.keras",
    "tabular": "tabular-model/saved_models/prices-best.keras",
    "text": "text-models/text.keras",
}


def draw(folder: Path, *classes: str) -> None:
    """Images of one brightness for each class."""
    from PIL import Image  # not part of the environment that the other tests need

    for part, count in (("train", 8), ("test", 4)):
        for level, name in enumerate(classes):
            (folder / part / name).mkdir(parents=True)
            for number in range(count):
                shade = 90 * level + 4 * number
                Image.new("RGB", (64, 64), (shade, shade, shade)).save(folder / part / name / f"{number}.jpg")


@pytest.fixture(scope="module")
def directory(shared_directory: Callable[[str], Path]) -> Path:
    """What pods see as /data."""
    return shared_directory("examples")


@pytest.fixture(scope="module")
def claim(module_namespace: Namespace, directory: Path) -> None:
    """A volume for the claim of the examples, in place of one that Azure provides."""
    wanted = yaml.safe_load((EXAMPLES / "storage" / "claim.yaml").read_text())
    spec = {name: wanted["spec"][name] for name in ("accessModes", "storageClassName")}
    spec["capacity"] = wanted["spec"]["resources"]["requests"]
    spec["claimRef"] = {"namespace": module_namespace.name, "name": wanted["metadata"]["name"]}
    spec["hostPath"] = {"path": str(directory)}
    metadata = {"name": f"{module_namespace.name}-examples"}
    module_namespace.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec})


@pytest.fixture(scope="module")
def examples(
    module_namespace: Namespace,
    claim: None,
    directory: Path,
    target: Target,
    images: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Examples]:
    """All of them, in one namespace and on one claim."""
    made = Examples(module_namespace, target, tmp_path_factory.mktemp("user"), images["trainer"])
    draw(made.folder / "pets", "ant", "bee")
    draw(made.folder / "flowers", "aster", "lily", "rose")
    for name in MODELS:
        made.change(name, REQUESTS)
    assert sleeping_library(directory), "without a C compiler, ranks that wait use all processors"
    for name in MODELS:
        steps = [{"name": "TRAINER_MAX_STEPS", "value": str(STEPS[name])}] if name in STEPS else []
        variables = "".join(f"\n    - {json.dumps(each)}" for each in (RARELY, SLEEPING, *steps))
        if name == "tabular":  # it has variables of its own
            made.change(name, ("\n  env:", f"\n  env:{variables}"))
        else:
            made.change(name, ("\n  worker:", f"\n  env:{variables}\n  worker:"))
    made.run("kubectl apply -f storage/claim.yaml")  # of two that create it at once, one would fail
    with ThreadPoolExecutor(len(MODELS)) as pool:
        for row in ROWS:
            made.start(pool, *row)
        yield made


@pytest.mark.parametrize("name", MODELS)
def test_an_example_leaves_its_model_on_the_claim(examples: Examples, name: str) -> None:
    examples.output(name)
    with zipfile.ZipFile(examples.folder / MODELS[name]) as model:
        assert "model.weights.h5" in model.namelist()


def test_the_page_about_data_has_the_commands_of_an_example(examples: Examples) -> None:
    (block,) = page.blocks(ROOT / "docs" / "data.md", "console", "In short")
    typed = [line.partition("  #")[0].rstrip() for line in block.replace("manifests/examples/", "").splitlines()]
    assert " && ".join(typed) == " && ".join(COMMAND.findall((EXAMPLES / "images.yaml").read_text()))


def test_the_elastic_example_is_scaled_while_it_runs(examples: Examples) -> None:
    examples.output("elastic")
    assert "Training with 3 ranks " in examples.run("kubectl logs elastic-launcher")


def test_fine_tuning_begins_with_the_weights_of_the_images(examples: Examples) -> None:
    examples.output("fine-tuning")
    assert "has another shape and keeps its random weights" in examples.run("kubectl logs fine-tuning-launcher")
