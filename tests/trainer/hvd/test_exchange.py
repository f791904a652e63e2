"""The exchange over mpi4py has the results of that over Horovod, bit for bit, on two ranks."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAM = str(Path(__file__).parent / "programs" / "exchange_steps.py")
OWN_LINES = ("LOADED", "REFUSED")  # not those of the other exchange
REFUSED = ("Adasum", "elastic training", "process sets", "the timeline of Horovod")


@pytest.fixture(scope="module")
def program(fork_server: Callable[..., Any]) -> Iterator[list[str]]:
    """The command line of the program in a process that has imported TensorFlow, but neither Horovod nor MPI."""
    with fork_server("tensorflow", "keras") as python:
        yield [*python, PROGRAM]


@pytest.fixture(scope="module")
def outputs(run: Callable[..., Any], program: list[str]) -> dict[str, str]:
    """The output of the program with each exchange."""
    found = {name: run(2, program, {"HOROVODJOB_EXCHANGE": name}) for name in ("horovod", "mpi4py")}
    assert {name: ended.stderr for name, ended in found.items() if ended.code} == {}
    return {name: ended.stdout for name, ended in found.items()}


def results(output: str) -> list[str]:
    return sorted(line for line in output.splitlines() if not line.startswith(OWN_LINES))


def test_training_and_all_operations_have_the_same_bits(outputs: dict[str, str]) -> None:
    assert results(outputs["mpi4py"]) == results(outputs["horovod"])
    weights = re.findall("^(?:none|bf16) (.*)$", outputs["mpi4py"], re.MULTILINE)
    assert (len(weights), len(set(weights))) == (4, 2)  # the ranks are equal, the compressions are not
    assert outputs["mpi4py"].count("sparse IndexedSlices [0 3 1 3] ") == 2


def test_each_exchange_has_all_operations_and_only_the_selected_one_is_loaded(outputs: dict[str, str]) -> None:
    for name, output in outputs.items():
        assert set(re.findall("^LOADED (.*)$", output, re.MULTILINE)) == {f"['{name}']"}
        (operations,) = set(re.findall(r"^MISSING \[\] of ([0-9]+)$", output, re.MULTILINE))
        assert int(operations) > 40


def test_what_mpi4py_does_not_support_ends_with_a_sentence(outputs: dict[str, str]) -> None:
    refused = re.findall("^REFUSED (.*): the exchange mpi4py does not support (.*): unset HOROVODJOB_EXCHANGE$",
                         outputs["mpi4py"], re.MULTILINE)  # fmt: skip
    assert sorted(refused) == sorted(2 * [(name, name) for name in REFUSED])


def test_ranks_in_different_operations_end_instead_of_mixing_their_values(
    run: Callable[..., Any], program: list[str]
) -> None:
    ended = run(2, [*program, "unordered"], {"HOROVODJOB_EXCHANGE": "mpi4py"})
    assert ended.code != 0
    assert "rank 1 is in another operation than rank 0, allreduce of rank 1: " in ended.stdout


def test_an_unknown_exchange_is_refused(run: Callable[..., Any], program: list[str]) -> None:
    ended = run(1, program, {"HOROVODJOB_EXCHANGE": "gloo"})
    assert "ImportError: HOROVODJOB_EXCHANGE is gloo, and must be horovod or mpi4py" in ended.stderr
