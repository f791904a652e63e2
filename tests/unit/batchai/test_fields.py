"""The table of fields: the documentation has it, and the conversion follows it."""

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from horovodjob.batchai.choices import Choices
from horovodjob.batchai.conversion import ConversionError, convert
from horovodjob.batchai.fields import FIELDS, page_with_table, toolkits
from support.batchai_documents import EVERYTHING, NFS_SERVERS, Object, small, toolkit

PAGE = Path(__file__).resolve().parents[3] / "docs" / "job-json.md"
VALUES: Object = {
    "processCount": 8,
    "configFilePath": "model.cntk",
    "languageType": "BrainScript",
    "communicationBackend": "Gloo",
    "workerCount": 2,
    "parameterServerCount": 2,
    "commandLine": "./train --all",
}
VAULT = {"sourceVault": {"id": "/v"}, "secretUrl": "https://v/p"}


def test_the_page_has_the_table_of_the_code() -> None:
    page = PAGE.read_text()
    assert page == page_with_table(page), (
        "docs/job-json.md is out of date: python -m horovodjob.batchai.fields docs/job-json.md"
    )


def document_with(path: str) -> Object:
    """A document that can be converted and, if the toolkit allows it, has the field."""
    key, _, field = path.partition(".")
    if key in toolkits():
        program = {"commandLine": "./train"} if key.startswith("custom") else {"pythonScriptFilePath": "/train.py"}
        needed: Object = {} if field == "configFilePath" else program
        nodes = 1 if key in ("tensorFlowSettings", "pyTorchSettings") else 2
        return toolkit(key, nodes, **needed | {field: VALUES.get(field, "/other")})
    document = copy.deepcopy(EVERYTHING)
    if "passwordSecretReference" in path:
        registry = document["properties"]["containerSettings"]["imageSourceRegistry"]
        registry["credentials"] = {"username": "u", "passwordSecretReference": VAULT}
    if path.startswith("mountVolumes.azureBlobFileSystems[].credentials"):
        reference = {"accountKeySecretReference": VAULT} if "Reference" in path else {"accountKey": "k"}
        blob = {"accountName": "third", "containerName": "c", "relativeMountPath": "b", "credentials": reference}
        return small(mountVolumes={"azureBlobFileSystems": [blob]})
    return document


def changed(value: Any, path: str) -> Iterator[Any]:
    """The document without the field, and with another value, at each position."""
    key, _, rest = path.partition(".")
    name = key.removesuffix("[]")
    if key.endswith("[]"):
        for index, item in enumerate(value.get(name, [])):
            for inner in changed(item, rest):
                yield value | {name: [*value[name][:index], inner, *value[name][index + 1 :]]}
    elif rest and name in value:
        for inner in changed(value[name], rest):
            yield value | {name: inner}
    elif not rest and name in value:
        yield {field: inner for field, inner in value.items() if field != name}
        yield value | {name: f"{value[name]}2" if isinstance(value[name], str) else value[name] * 2}


@pytest.mark.parametrize(
    "path", [path for path, field in FIELDS.items() if field.becomes and "sourceVault" not in path]
)
def test_a_field_affects_what_the_table_names(path: str) -> None:
    document = document_with(path)
    others = list(changed(document["properties"], path))
    assert others, "the document has no such field"
    target = re.match(r"Secret|`(\w+)(\.\w+)?", FIELDS[path].becomes)
    assert target, "the table names a field of the spec, or a Secret"
    before = result(document, target)
    assert any(result({"properties": other}, target) != before for other in others)


def result(document: object, target: re.Match[str]) -> object:
    """A field of the spec; the Secrets that are made or that the user must make; the problems, for a refused value."""
    try:
        made = convert(document, name="job", choices=Choices(nfs_servers=NFS_SERVERS))
    except ConversionError as error:
        return [problem.path for problem in error.problems]
    if target[1] is None:
        return made.secrets, [warning for warning in made.warnings if "Secret" in warning]
    value = made.job["spec"].get(target[1])
    return value.get(target[2][1:]) if target[2] and isinstance(value, dict) else value


@pytest.mark.parametrize("path", [path for path, field in FIELDS.items() if field.refusal and not field.becomes])
def test_an_unsupported_field_is_rejected_with_the_path_of_its_toolkit(path: str) -> None:
    with pytest.raises(ConversionError) as error:
        convert(document_with(path), name="job")
    assert f"properties.{path}".startswith(error.value.problems[0].path)


def test_no_known_field_causes_a_warning_as_unknown() -> None:
    for path in FIELDS:
        assert "is not a field" not in said(document_with(path)), path


def said(document: object) -> str:
    try:
        return str(convert(document, name="job", choices=Choices(nfs_servers=NFS_SERVERS)).warnings)
    except ConversionError as error:
        return f"{error} {error.warnings}"
