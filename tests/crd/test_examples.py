"""The examples of the documentation."""

from pathlib import Path

import pytest
import yaml

from support.api_client import JOBS, ROOT, Api

EXAMPLES = sorted((ROOT / "manifests" / "examples").glob("*.yaml"))
NAMED = [pytest.param(path, id=path.name) for path in EXAMPLES]


@pytest.mark.parametrize("path", NAMED)
def test_the_api_server_accepts_an_example_and_prunes_nothing(path: Path, api: Api) -> None:
    example = yaml.safe_load(path.read_text())
    namespace = example["metadata"].setdefault("namespace", "default")
    if namespace != "default" and not api.find(f"/api/v1/namespaces/{namespace}"):
        api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    collection = JOBS.format(namespace)
    created = api.create(f"{collection}?fieldValidation=Strict", example)
    assert holds(created["spec"], example["spec"])
    api.delete(f"{collection}/{example['metadata']['name']}")


def holds(stored: object, given: object) -> bool:
    """Whether all given fields are stored; the API server may have added defaults."""
    if isinstance(given, dict) and isinstance(stored, dict):
        return all(key in stored and holds(stored[key], value) for key, value in given.items())
    if isinstance(given, list) and isinstance(stored, list):
        return len(given) == len(stored) and all(map(holds, stored, given))
    return stored == given
