"""Detection of unused callbacks: those in variables that no line of the script reads."""

import pytest

from horovodjob_trainer.compat.unused_callbacks import UnusedCallbacks, find_unused_callbacks


def unused_callbacks(source: str, **variables: object) -> tuple[UnusedCallbacks, ...]:
    """Callbacks are integers here."""
    return find_unused_callbacks(source, variables, lambda value: isinstance(value, int))


@pytest.mark.parametrize(
    "source",
    [
        "callbacks = [1]\ncallbacks.append(2)\nmodel.fit(x)",
        "callbacks = [1]\nif first:\n    callbacks.extend([2])\nmodel.fit(x)",
        "callbacks = []\ncallbacks += [1, 2]\nmodel.fit(x)",
        "def train():\n    callbacks = [1]\n    callbacks.insert(0, 2)\n    model.fit(x)",
    ],
)
def test_a_list_with_additions_only_is_unused(source: str) -> None:
    line = 2 if source.startswith("def") else 1
    assert unused_callbacks(source, callbacks=[1, 2], x=3) == (UnusedCallbacks("callbacks", line, (1, 2)),)


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
def test_a_list_that_the_script_reads_is_not_reported(source: str) -> None:
    assert unused_callbacks(source, callbacks=[1], more=[1, 2], last=1) == ()


def test_variables_without_callbacks_are_not_reported() -> None:
    assert (
        unused_callbacks("a = []\nb = 'text'\nc = [1, 'text']\nd = {}\ne: int", a=[], b="text", c=[1, "text"], d={})
        == ()
    )


def test_several_variables_are_reported_in_the_order_of_the_script() -> None:
    names = [entry.name for entry in unused_callbacks("z = 1\na = (2, 3)\nmodel.fit(x)", a=(2, 3), z=1)]
    assert names == ["z", "a"]


def test_a_file_with_a_syntax_error_has_no_unused_callbacks() -> None:
    assert unused_callbacks("callbacks = [1\n", callbacks=[1]) == ()
