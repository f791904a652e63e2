"""Jobs survive an upgrade of the CRD and its rollback; docs/upgrade.md defines the allowed changes of v1beta1."""

import itertools
import re
from collections.abc import Iterator

import pytest
import yaml

from crd.every_field import SPECS, STATUS, fields, paths, pruned
from support.api_client import BASE, Api, ApiError, Object, install_definition, job, wait_for
from support.previous_release import shipped_file

MORE_IS_STRICTER = ("minimum", "minLength", "minItems")
LESS_IS_STRICTER = ("maximum", "maxLength", "maxItems", "maxProperties")
UNCHANGED = ("type", "default", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-int-or-string")
# Patterns, each with a replacement that matches every string that it matched.
LOOSER_PATTERNS = (
    (r"^\S+$", r"^\S*$"),
    (r"^[A-Za-z_][A-Za-z0-9_]*$", r"^[-._A-Za-z][-._A-Za-z0-9]*$"),
)
OPEN = "x-kubernetes-preserve-unknown-fields"


def definition(text: str) -> Object:
    found: Object = next(yaml.safe_load_all(text))
    return found


PREVIOUS, PRESENT = definition(shipped_file("manifests/base/crd.yaml")), definition((BASE / "crd.yaml").read_text())


def schema(of: Object) -> Object:
    found: Object = of["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def incompatibilities(old: Object, new: Object, path: str) -> Iterator[str]:
    """Reasons why the new schema could reject, change or prune an object that the old one accepts."""
    for name, field in old.get("properties", {}).items():
        if name in new.get("properties", {}):
            yield from incompatibilities(field, new["properties"][name], f"{path}.{name}")
        else:
            yield f"{path}.{name} is missing"
    for key in ("items", "additionalProperties"):
        if isinstance(old.get(key), dict):
            yield from incompatibilities(old[key], new.get(key, {}), f"{path}[]")
    yield from (f"{path}.{name} is required" for name in set(new.get("required", ())) - set(old.get("required", ())))
    yield from (f"{path}: {key} is another" for key in UNCHANGED if old.get(key) != new.get(key))
    if OPEN in old and OPEN not in new:
        yield f"{path} is not open any more"
    if "enum" in new and not ("enum" in old and set(old["enum"]) <= set(new["enum"])):
        yield f"{path} allows fewer values"
    patterns = (old.get("pattern"), new.get("pattern"))
    if patterns[1] not in (None, patterns[0]) and patterns not in LOOSER_PATTERNS:
        yield f"{path} has another pattern"
    for key in MORE_IS_STRICTER:
        if key in new and new[key] > old.get(key, float("-inf")):
            yield f"{path}: {key} is stricter"
    for key in LESS_IS_STRICTER:
        if key in new and new[key] < old.get(key, float("inf")):
            yield f"{path}: {key} is stricter"


def test_the_schema_accepts_and_keeps_all_that_the_previous_release_did() -> None:
    assert list(incompatibilities(schema(PREVIOUS), schema(PRESENT), "")) == []


@pytest.mark.parametrize(("old", "new"), LOOSER_PATTERNS)
def test_a_looser_pattern_matches_every_short_string_that_the_previous_one_did(old: str, new: str) -> None:
    letters = [chr(code) for code in range(32, 127)]
    strings = ("", *letters, *map("".join, itertools.product(letters, repeat=2)))
    lost = [string for string in strings if re.search(old, string) and not re.search(new, string)]
    assert lost == []


def test_one_version_is_served_and_stored(api: Api) -> None:
    stored = api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/horovodjobs.horovodjob.dev")
    assert stored["status"]["storedVersions"] == ["v1beta1"]
    assert [version["name"] for version in stored["spec"]["versions"]] == ["v1beta1"]


@pytest.mark.parametrize("release", [PREVIOUS, PRESENT], ids=["previous", "present"])
def test_the_sample_jobs_have_every_field(release: Object) -> None:
    parts = schema(release)["properties"]
    spec, status = {path for one in SPECS.values() for path in paths(one)}, set(paths(STATUS))
    assert [path for path in fields(parts["spec"]) if path not in spec] == []
    assert [path for path in fields(parts["status"]) if path not in status] == []


def serve(api: Api, release: Object, jobs: str) -> None:
    """Applies the CRD of a release with an additional field, and waits until the API server uses it."""
    mark = "present" if release is PRESENT else "previous"
    marked = yaml.safe_load(yaml.safe_dump(release))
    schema(marked)["properties"][mark] = {"type": "string", "description": "Which CRD is served."}
    done = api.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=yaml.safe_dump(marked))
    assert done.returncode == 0, done.stderr
    wait_for(f"the {mark} CRD", lambda: mark in api.create(f"{jobs}?dryRun=All", {**job("probe"), mark: "yes"}))


@pytest.fixture
def releases(api: Api) -> Iterator[None]:
    """Restores the present CRD after the test."""
    yield
    install_definition(api)


def test_jobs_survive_an_upgrade_of_the_crd_and_its_rollback(api: Api, jobs: str, releases: None) -> None:
    parts = schema(PREVIOUS)["properties"]
    serve(api, PREVIOUS, jobs)
    for name, spec in SPECS.items():
        api.create(f"{jobs}?fieldValidation=Strict", {**job(f"kept-{name}"), "spec": pruned(spec, parts["spec"])})
        api.patch(f"{jobs}/kept-{name}/status", {"status": pruned(STATUS, parts["status"])})
    before = {name: api.get(f"{jobs}/kept-{name}") for name in SPECS}
    late = f"{jobs}/changed-late"  # after its end, which the previous release allowed
    api.create(jobs, {**job("changed-late"), "spec": SPECS["elastic"] | {"runPolicy": {"suspend": True}}})
    api.patch(f"{late}/status", {"status": pruned(STATUS, parts["status"]) | {"phase": "Succeeded"}})
    api.patch(f"{late}/scale", {"spec": {"replicas": 3}})

    serve(api, PRESENT, jobs)
    for name, old in before.items():
        path = f"{jobs}/kept-{name}"
        assert api.get(path) == old
        api.patch(f"{path}/status", {"status": STATUS | {"attempt": 3}})
        api.patch(path, {"metadata": {"labels": {"team": "a"}}, "spec": {"runPolicy": {"suspend": True}}})
        changed = api.patch(path, {"spec": {"image": "trainer:2"}})
        policy = old["spec"]["runPolicy"] | {"suspend": True}
        assert changed["spec"] == old["spec"] | {"image": "trainer:2", "runPolicy": policy}
        assert changed["status"] == STATUS | {"attempt": 3}
        before[name] = changed
    assert api.patch(f"{late}/status", {"status": {"observedGeneration": 2}})["status"]["observedGeneration"] == 2
    assert api.patch(late, {"metadata": {"labels": {"team": "a"}}})["spec"]["worker"]["replicas"] == 3
    for target, body in ((late, {"image": "trainer:2"}), (f"{late}/scale", {"replicas": 2})):
        with pytest.raises(ApiError, match="the job has ended and never runs again"):
            api.patch(target, {"spec": body})
    api.delete(late)

    serve(api, PREVIOUS, jobs)
    for name, new in before.items():
        path = f"{jobs}/kept-{name}"
        for part in ("spec", "status"):
            assert api.get(path)[part] == pruned(new[part], parts[part])
        assert api.patch(path, {"metadata": {"labels": {"team": "b"}}})["spec"] == api.get(path)["spec"]
        api.delete(path)
