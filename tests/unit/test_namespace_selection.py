"""The namespaces that labels select: what the operator remembers of each, and when it forgets it."""

from typing import Any

import pytest

from horovodjob.api.constants import ANNOTATION_JOB_DEFAULTS
from horovodjob_operator.controller.watches.namespace_selection import NamespaceSelection
from horovodjob_operator.domain.job_defaults import parse_job_defaults

OWN = '{"nodeSelector": {"pool": "own"}}'
OPERATOR = parse_job_defaults('{"nodeSelector": {"pool": "all"}, "shmSize": "1Gi"}')


class Selection(NamespaceSelection):
    """A selection that records what it calls."""

    def __init__(self, *, is_selective: bool = True) -> None:
        super().__init__(OPERATOR, is_selective=is_selective)
        self.calls: list[tuple[str, str]] = []
        self.selected = lambda name: self.calls.append(("selected", name))
        self.deselected = lambda name: self.calls.append(("deselected", name))
        self.changed = lambda name: self.calls.append(("changed", name))

    def pool(self, name: str) -> str:
        return (self.defaults(name).values.node_selector or {})["pool"]


def team(name: str = "team", uid: str = "1", annotation: str = "") -> dict[str, Any]:
    """A namespace as the API server sends it."""
    metadata: dict[str, Any] = {"name": name, "uid": uid}
    return {"metadata": metadata | ({"annotations": {ANNOTATION_JOB_DEFAULTS: annotation}} if annotation else {})}


def test_without_a_selector_every_namespace_is_selected_with_the_defaults_of_the_operator() -> None:
    selection = Selection(is_selective=False)
    assert "any" in selection
    assert (selection.has_listed, selection.pool("any")) == (True, "all")


def test_no_namespace_is_selected_before_a_list_has_it() -> None:
    selection = Selection()
    assert (selection.has_listed, "team" in selection) == (False, False)
    selection.namespace_updated(team())
    selection.namespaces_listed({"1"}, 1, "")
    assert (selection.has_listed, "team" in selection, "other" in selection) == (True, True, False)
    assert selection.calls == [("selected", "team")]


def test_a_namespace_that_loses_its_label_or_is_in_no_list_is_forgotten_with_its_defaults() -> None:
    selection = Selection()
    selection.namespace_updated(team(annotation=OWN))
    assert selection.pool("team") == "own"
    selection.namespace_deleted(team(annotation=OWN))
    assert ("team" in selection, selection.pool("team")) == (False, "all")
    selection.namespace_deleted(team())
    assert selection.calls == [("selected", "team"), ("deselected", "team")], "once"
    selection.namespace_updated(team())
    selection.namespace_updated(team("other", "2", OWN))
    selection.namespaces_listed({"2"}, 1, "")
    assert ("team" in selection, "other" in selection, selection.pool("other")) == (False, True, "own")
    assert selection.calls[4:] == [("deselected", "team")]


def test_a_changed_annotation_changes_the_defaults_and_another_change_does_nothing() -> None:
    selection = Selection()
    selection.namespace_updated(team())
    assert selection.pool("team") == "all"
    selection.namespace_updated(team(annotation=OWN))
    assert (selection.pool("team"), selection.defaults("team").values.shm_size) == ("own", "1Gi")
    selection.namespace_updated(team(annotation=OWN))
    selection.namespace_updated(team())
    assert selection.pool("team") == "all"
    assert selection.calls == [("selected", "team"), ("changed", "team"), ("changed", "team")]


def test_another_namespace_of_the_same_name_replaces_the_deleted_one() -> None:
    selection = Selection()
    selection.namespace_updated(team(annotation=OWN))
    selection.namespace_updated(team(uid="2", annotation=OWN))
    selection.namespaces_listed({"2"}, 1, "")
    assert ("team" in selection, selection.pool("team")) == (True, "own"), "the old one is not listed"
    selection.namespace_updated(team(uid="3"))
    assert selection.pool("team") == "all"


def test_a_malformed_annotation_is_an_error_until_it_is_corrected(caplog: pytest.LogCaptureFixture) -> None:
    selection = Selection()
    selection.namespace_updated(team(annotation="{"))
    assert selection.defaults("team").error.startswith(f"annotation {ANNOTATION_JOB_DEFAULTS} of namespace team: ")
    assert "its jobs get no pods until it is corrected" in caplog.text
    selection.namespace_updated(team(annotation=OWN))
    assert (selection.defaults("team").error, selection.pool("team")) == ("", "own")
