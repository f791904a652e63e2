"""Cases are functions of the modules in `cases` that all ranks of one job run; each is a test here."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.support.interruptions import SHARED

CASES = Path(__file__).parent / "cases"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The cases of a test are those of the MODULES of its file."""
    if "case" in metafunc.fixturenames:
        modules = {name: ast.parse((CASES / f"{name}.py").read_text()) for name in metafunc.module.MODULES}
        names = [
            f"{name}.{node.name}"
            for name, module in modules.items()
            for node in module.body
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        ]
        metafunc.parametrize("case", names)


@pytest.fixture(scope="module")
def passed(
    request: pytest.FixtureRequest,
    run: Callable[..., Any],
    preloaded_python: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], None]:
    """Checks that all ranks have passed a case, in one job of as many RANKS as the file of the test says.

    The job has the cases of all tests that are selected, and ends with the first one that fails.
    """
    tests = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    cases = [item.callspec.params["case"] for item in tests if "case" in item.fixturenames]
    (names := tmp_path_factory.mktemp("cases") / "passed").touch()
    variables = {"HOROVOD_TIMELINE": "DYNAMIC", "HOROVOD_DYNAMIC_PROCESS_SETS": "1", **SHARED}
    ended = run(request.module.RANKS, [*preloaded_python, str(CASES / "run.py"), str(names), *cases], variables)

    def check(case: str) -> None:
        assert case in names.read_text().splitlines(), ended.stderr

    return check
