"""A function as a script: its source, with what it uses of the module around it, and nothing else."""

import collections
import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from horovodjob.client.runs import function_script
from horovodjob.client.runs.request import request_of

# What a notebook has of earlier cells, under names that functions use for themselves.
x = i = line = object()


def helper() -> int:
    return 3


alias = helper


class Base:
    step = 1


class Net(Base):
    def total(self) -> int:
        return self.step + alias()


NetAlias = Net


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return call


def own_names() -> None:
    def inner(x: int) -> int:
        return x

    print(list(map(lambda x: x + 1, [1])), [i for i in range(2)], [line for line in "ab"], inner(2))  # noqa: C416, C417


def other_names() -> None:
    print(alias() + Net().total() + NetAlias().total())


@decorated
def with_decorator() -> None:
    print(collections.Counter("aab")["a"])


def is_even(number: int = 4) -> bool:
    found = number == 0 or is_odd(number - 1)
    print(found, end=" ")
    return found


def is_odd(number: int) -> bool:
    return number != 0 and is_even(number - 1)


def own_module() -> None:
    print(__name__)


@pytest.mark.parametrize(
    ("function", "output"),
    [
        (own_names, "[2] [0, 1] ['a', 'b'] 2\n"),
        (other_names, "11\n"),
        (with_decorator, "2\n"),
        (is_even, "True True True "),
        (own_module, "__main__\n"),
    ],
)
def test_a_function_takes_what_it_uses_with_it(function: Callable[..., Any], output: str, tmp_path: Path) -> None:
    script = function_script.write(function, (), (), tmp_path)
    assert subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout == output


def uses_json() -> None:
    import user_program  # type: ignore[import-not-found]

    print(json.dumps(user_program.__name__))


def test_a_module_beside_the_notebook_that_is_not_sent_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    request_of(uses_json, (), {}, tmp_path)
    sentence = "uses_json imports user_program, which is a file of this directory and is not sent with a function"
    assert capsys.readouterr().err == f"{sentence}: add workdir='.', unless the image has it\n"
    request_of(uses_json, (), {"workdir": "."}, tmp_path)
    request_of(uses_json, (), {"quiet": True}, tmp_path)
    assert capsys.readouterr().err == ""
