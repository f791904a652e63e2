"""Licences of the dependencies."""

from __future__ import annotations

from email.message import Message
from importlib.metadata import distributions

import pytest

from horovodjob_release.licences import debian_licences, is_distributable, python_licence


def core_metadata(**fields: str) -> Message[str, str]:
    message: Message[str, str] = Message()
    for name, value in {"Name": "a", **fields}.items():
        message[name.replace("_", "-")] = value
    return message


def test_everything_that_is_installed_may_be_distributed() -> None:
    stated = {one.name: python_licence(one.metadata) for one in distributions()}  # type: ignore[arg-type]
    assert len(stated) > 50
    assert {name: licence for name, licence in stated.items() if not is_distributable(licence)} == {}


@pytest.mark.parametrize(
    ("fields", "expression"),
    [
        ({"License_Expression": "MIT AND Apache-2.0", "License": "GPL"}, "MIT AND Apache-2.0"),
        ({"License": "BSD-3-Clause"}, "BSD-3-Clause"),
        ({"License": "A text of many words", "Classifier": "License :: OSI Approved :: MIT License"}, "MIT"),
        ({"License": "A text of many words"}, "NOASSERTION"),
    ],
)
def test_a_licence_is_an_expression_whatever_the_age_of_the_metadata(fields: dict[str, str], expression: str) -> None:
    assert python_licence(core_metadata(**fields)) == expression


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Format: x\n\nFiles: *\nLicense: Expat\n text\n\nFiles: a\nLicense: GPL-2+\n", ("Expat", "GPL-2+")),
        ("On Debian systems, see /usr/share/common-licenses/LGPL-2.1.\n", ("LGPL-2.1",)),
        ("License: By using this software ...\n", ()),
    ],
)
def test_a_copyright_file_of_debian_names_licences(text: str, names: tuple[str, ...]) -> None:
    assert debian_licences(text) == names
