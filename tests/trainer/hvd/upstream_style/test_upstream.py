"""The behavior that Horovod tests for Keras 2 holds for Keras 3, on two ranks."""

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent
CASES = [
    f"{path.stem}.{node.name}"
    for path in sorted(FOLDER.glob("*_cases.py"))
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
]


@pytest.fixture(scope="module")
def errors(
    run: Callable[..., Any], preloaded_python: list[str], tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, str]]:
    """The error of each case on each rank, empty if it passed."""
    directory = tmp_path_factory.mktemp("upstream")
    ended = run(2, [*preloaded_python, str(FOLDER / "run_all.py"), str(directory)])
    assert ended.code == 0, ended.stderr
    return [json.loads((directory / f"errors-{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("case", CASES)
def test_horovod_for_keras_3_behaves_as_horovod_for_keras_2(errors: list[dict[str, str]], case: str) -> None:
    for each in errors:
        assert not each[case], each[case]
