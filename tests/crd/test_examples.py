"""The examples: the API server accepts them, their claim is beside them, and each is run or says why it is not."""

from pathlib import Path

import pytest
import yaml

from crd.every_field import holds
from support.api_client import JOBS, ROOT, Api

FOLDER = ROOT / "manifests" / "examples"
EXAMPLES = sorted(FOLDER.glob("*.yaml"))
NAMED = [pytest.param(path, id=path.name) for path in EXAMPLES]
NOT_RUN = "# Not run by the tests"
RUN = {
    "tests/e2e/installation/test_install_page.py": ("digits",),
    "tests/e2e/programs/test_examples.py": ("gang", "hello", "slots", "spot"),
    "tests/e2e/training/test_training_examples.py": (
        "elastic",
        "fine-tuning",
        "images",
        "script",
        "segmentation",
        "tabular",
        "text",
    ),
    "tests/integration/scheduling/test_queues.py": ("queue",),
}


@pytest.mark.parametrize("path", NAMED)
def test_the_api_server_accepts_an_example_and_prunes_nothing(path: Path, api: Api) -> None:
    example = yaml.safe_load(path.read_text())
    namespace = example["metadata"].setdefault("namespace", "default")
    if namespace != "default" and not api.find(f"/api/v1/namespaces/{namespace}"):
        api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    created = api.create(f"{JOBS.format(namespace)}?fieldValidation=Strict&dryRun=All", example)
    assert holds(created["spec"], example["spec"])


@pytest.mark.parametrize("name", ["claim", "nfs"])
def test_the_claim_of_the_examples_is_accepted(name: str, api: Api) -> None:
    done = api.kubectl("apply", "--dry-run=server", "-f", str(FOLDER / "storage" / f"{name}.yaml"))
    assert done.returncode == 0, done.stderr
    assert "persistentvolumeclaim/training-data created" in done.stdout


@pytest.mark.parametrize("path", NAMED)
def test_an_example_is_run_or_says_in_its_first_line_that_it_is_not(path: Path) -> None:
    text = path.read_text()
    volumes = yaml.safe_load(text)["spec"].get("volumes", [])
    claims = {each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each}
    is_run = any(path.stem in names for names in RUN.values())
    assert text.startswith(NOT_RUN) is not is_run
    assert not is_run or claims <= {"training-data"}, "storage/claim.yaml has the claim of all of them"
    assert [
        file for file, names in RUN.items() if path.stem in names and path.stem not in (ROOT / file).read_text()
    ] == []
