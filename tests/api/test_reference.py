"""The API reference says what the models say, and all of it."""

from api.client import ROOT
from horovodjob.api.reference import CONDITIONS, EVENTS, PHASES, REASONS, reference
from horovodjob.api.vocabulary import ConditionType, EventReason, Phase, Reason


def test_the_committed_page_is_what_the_models_say() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    assert page == reference(), "docs/api.md is out of date: run `python -m horovodjob.api.reference docs/api.md`"


def test_the_users_find_an_entry_for_every_reason() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    assert [reason for reason in Reason if f"**{reason}** -- " not in page] == []


def test_every_word_of_the_status_has_a_meaning() -> None:
    told = {*PHASES, *CONDITIONS, *REASONS, *EVENTS}
    assert told == {*Phase, *ConditionType, *Reason, *EventReason}
