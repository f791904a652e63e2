"""The exchange over mpi4py has the results of that over Horovod, bit for bit, on two ranks."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from horovodjob_trainer.hvd.exchange import over_horovod, over_mpi
from horovodjob_trainer.hvd.exchange.interface import Exchange

PROGRAM = str(Path(__file__).parent / "programs" / "exchange_steps.py")
REFUSED = ("process sets", "Adasum", "elastic")


@pytest.fixture(scope="module")
def outputs(run: Callable[..., Any]) -> dict[str, str]:
    """The output of the program with each exchange."""
    found = {name: run(2, [sys.executable, PROGRAM], {"HOROVODJOB_EXCHANGE": name}) for name in ("horovod", "mpi4py")}
    assert {name: ended.stderr for name, ended in found.items() if ended.code} == {}
    return {name: ended.stdout for name, ended in found.items()}


def lines(output: str, *without: str) -> list[str]:
    return sorted(line for line in output.splitlines() if not line.startswith(("LOADED", *without)))


def test_training_and_all_operations_have_the_same_bits(outputs: dict[str, str]) -> None:
    assert lines(outputs["mpi4py"], *REFUSED) == lines(outputs["horovod"], *REFUSED)
    weights = re.findall("^(?:none|bf16) (.*)$", outputs["mpi4py"], re.MULTILINE)
    assert (len(weights), len(set(weights))) == (4, 2)  # the ranks are equal, the compressions are not


def test_only_the_selected_exchange_is_loaded(outputs: dict[str, str]) -> None:
    assert [set(re.findall("^LOADED (.*)$", each, re.MULTILINE)) for each in outputs.values()] == [
        {"['horovod']"},
        {"['mpi4py']"},
    ]


def test_what_mpi4py_does_not_support_ends_with_a_sentence(outputs: dict[str, str]) -> None:
    refused = set(re.findall(rf"^({'|'.join(REFUSED)}): (.*)$", outputs["mpi4py"], re.MULTILINE))
    what = {"process sets": "process sets", "Adasum": "Adasum", "elastic": "elastic training"}
    assert refused == {
        (name, f"the exchange mpi4py does not support {text}: unset HOROVODJOB_EXCHANGE") for name, text in what.items()
    }


def test_ranks_in_different_operations_end_instead_of_mixing_their_values(
    run: Callable[..., Any], preloaded_python: list[str]
) -> None:
    ended = run(2, [*preloaded_python, PROGRAM, "unordered"], {"HOROVODJOB_EXCHANGE": "mpi4py"})
    assert ended.code != 0
    assert "rank 1 is in another operation than rank 0, allreduce of rank 1: " in ended.stdout


def test_an_unknown_exchange_is_refused(run: Callable[..., Any], preloaded_python: list[str]) -> None:
    ended = run(1, [*preloaded_python, PROGRAM], {"HOROVODJOB_EXCHANGE": "gloo"})
    assert "ImportError: HOROVODJOB_EXCHANGE is gloo, and must be horovod or mpi4py" in ended.stderr


@pytest.mark.parametrize("module", [over_horovod, over_mpi])
def test_each_exchange_has_all_operations(module: Any) -> None:
    names = {name for name in (*vars(Exchange), *Exchange.__annotations__) if not name.startswith("_")}
    assert len(names) > 40
    assert sorted(name for name in names if not hasattr(module, name)) == []
