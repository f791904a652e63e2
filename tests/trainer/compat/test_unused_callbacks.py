"""Which callbacks count as forgotten: those in variables that no line of the script makes use of."""

import pytest

from horovodjob_trainer.compat.unused_callbacks import Forgotten, forgotten


def found(source: str, **variables: object) -> tuple[Forgotten, ...]:
    """Callbacks are integers here."""
    return forgotten(source, variables, lambda value: isinstance(value, int))


@pytest.mark.parametrize(
    "source",
    [
        "callbacks = [1]\ncallbacks.append(2)\nmodel.fit(x)",
        "callbacks = [1]\nif first:\n    callbacks.extend([2])\nmodel.fit(x)",
        "callbacks = []\ncallbacks += [1, 2]\nmodel.fit(x)",
        "def train():\n    callbacks = [1]\n    callbacks.insert(0, 2)\n    model.fit(x)",
    ],
)
def test_a_list_that_is_only_filled_is_forgotten(source: str) -> None:
    line = 2 if source.startswith("def") else 1
    assert found(source, callbacks=[1, 2], x=3) == (Forgotten("callbacks", line, (1, 2)),)


@pytest.mark.parametrize(
    "source",
    [
        "callbacks = [1]\nmodel.fit(x)\nmodel.fit(x, callbacks=callbacks)",
        "callbacks = [1]\nif never:\n    model.fit(x, None, callbacks)",
        "callbacks = [1]\nmore = callbacks + [2]\nmodel.fit(x, callbacks=more)",
        "callbacks = [1]\nprint(f'{callbacks}')\nmodel.fit(x)",
        "callbacks = [1]\nlast = callbacks.pop()\nmodel.fit(x, callbacks=[last])",
        "from other import callbacks\nmodel.fit(x)",
    ],
)
def test_a_list_that_the_script_reads_anywhere_is_its_own_affair(source: str) -> None:
    assert found(source, callbacks=[1], more=[1, 2], last=1) == ()


def test_what_holds_no_callbacks_is_left_alone() -> None:
    assert found("a = []\nb = 'text'\nc = [1, 'text']\nd = {}\ne: int", a=[], b="text", c=[1, "text"], d={}) == ()


def test_several_are_found_in_the_order_of_the_script_single_ones_too() -> None:
    names = [one.name for one in found("z = 1\na = (2, 3)\nmodel.fit(x)", a=(2, 3), z=1)]
    assert names == ["z", "a"]


def test_a_file_that_is_being_edited_holds_nothing() -> None:
    assert found("callbacks = [1\n", callbacks=[1]) == ()
