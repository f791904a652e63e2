"""The API reference is complete and matches the models."""

import re

import pytest

from horovodjob.api.constants import ConditionType, EventReason, Phase, Reason
from horovodjob.api.meanings import CONDITIONS, EVENTS, PHASES, REASONS
from horovodjob.api.reference import reference
from horovodjob_operator.domain.resources.parts.template import MERGE_KEYS
from support.api_client import ROOT


def test_the_committed_page_is_generated_from_the_models() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    assert page == reference(), "docs/api.md is out of date: run `python -m horovodjob.api.reference docs/api.md`"


def test_the_documentation_has_an_entry_for_every_reason() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    assert [reason for reason in Reason if f"**{reason}** -- " not in page] == []


def test_the_documentation_describes_the_merge_of_each_list_of_a_template() -> None:
    rows = [line for line in (ROOT / "docs" / "jobs-reference.md").read_text().splitlines() if line.startswith("| ")]
    for name, keys in MERGE_KEYS.items():
        (row,) = [row for row in rows if f"`{name}`" in row.split(" | ")[0]]
        assert all(f"`{key}`" in row for key in keys), name


@pytest.mark.parametrize("name", ["docs/comparison.md", "SECURITY.md"])
def test_the_tests_that_a_page_names_exist(name: str) -> None:
    page = (ROOT / name).read_text()
    tests = {file: (ROOT / "tests" / file).read_text() for file in re.findall(r"`([\w/]+/test_\w+\.py)`", page)}
    names = re.findall(r"`(test_\w+)`", page)
    assert len(names) > 15
    assert [name for name in names if not any(f"def {name}(" in text for text in tests.values())] == []


def test_every_value_of_the_status_has_a_description() -> None:
    described = {*PHASES, *CONDITIONS, *REASONS, *EVENTS}
    assert described == {*Phase, *ConditionType, *Reason, *EventReason}
