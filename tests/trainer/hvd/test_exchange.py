"""The exchange over mpi4py has the results of that over Horovod, bit for bit, on two ranks."""

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from horovodjob_trainer.hvd.exchange.selection import VARIABLE, selected

PROGRAM = str(Path(__file__).parent / "programs" / "exchange_steps.py")
MISSING = str(Path(__file__).parent / "programs" / "missing_exchange.py")
OWN_LINES = ("LOADED", "REFUSED")  # not those of the other exchange
REFUSED = ("Adasum", "elastic training", "process sets", "the timeline of Horovod")


@pytest.fixture(scope="module")
def outputs(run: Callable[..., Any], preloaded_python: list[str]) -> dict[str, str]:
    """The output of the program with each exchange."""
    found = {
        name: run(2, [*preloaded_python, PROGRAM], {"HOROVODJOB_EXCHANGE": name}) for name in ("horovod", "mpi4py")
    }
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
    run: Callable[..., Any], preloaded_python: list[str]
) -> None:
    ended = run(2, [*preloaded_python, PROGRAM, "unordered"], {"HOROVODJOB_EXCHANGE": "mpi4py"})
    assert ended.code != 0
    assert "rank 1 is in another operation than rank 0, allreduce of rank 1: " in ended.stdout


@pytest.mark.parametrize(("ranks", "modules"), [(2, ["horovod"]), (1, ["horovod", "mpi4py"])])
def test_without_horovod_the_ranks_exchange_over_mpi_and_a_line_says_so(
    run: Callable[..., Any], preloaded_python: list[str], ranks: int, modules: Sequence[str]
) -> None:
    ended = run(ranks, [*preloaded_python, MISSING, *modules])
    told = "2 ranks exchange over MPI with mpi4py" if ranks == 2 else "this is the only rank"
    lines = [line for line in ended.stderr.splitlines() if line.startswith("horovodjob_trainer: ")]
    assert (ended.code, lines) == (0, [f"horovodjob_trainer: Horovod is not built in this Python; {told}"])
    trained = re.findall("^TRAINED ([0-9]) of ([0-9]): (.*)$", ended.stdout, re.MULTILINE)
    assert sorted(each[:2] for each in trained) == [(str(rank), str(ranks)) for rank in range(ranks)]
    assert len({weights for _, _, weights in trained}) == 1


def test_processes_that_another_mpi_has_started_end_with_one_sentence(
    run: Callable[..., Any], preloaded_python: list[str]
) -> None:
    """Each of them would train alone."""
    ended = run(2, [*preloaded_python, MISSING, "horovod"], {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "3"})
    assert ended.code == 1
    sentence = "3 ranks were started, and the MPI library of mpi4py connects 2: .*"
    assert re.search(f"^horovodjob_trainer: {sentence}$", ended.stderr, re.MULTILINE), ended.stderr
    assert ("Traceback" in ended.stderr, "TRAINED" in ended.stdout) == (False, False)


@pytest.mark.parametrize(
    ("modules", "exchange", "sentence"),
    [
        (
            ["horovod", "mpi4py"],
            "",
            "2 ranks need Horovod, or MPI for Python, and .* has neither .*: pip install mpi4py ",
        ),
        (["horovod"], "horovod", "HOROVODJOB_EXCHANGE is horovod, and Horovod is not built in .*"),
        ([], "gloo", "HOROVODJOB_EXCHANGE is gloo, and must be horovod or mpi4py"),
    ],
)
def test_ranks_that_cannot_exchange_end_with_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capfd: Any, modules: Sequence[str], exchange: str, sentence: str
) -> None:
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)  # an import fails, and find_spec finds nothing
    for name, value in (("OMPI_COMM_WORLD_SIZE", "2"), ("OMPI_COMM_WORLD_RANK", "0"), (VARIABLE, exchange)):
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        selected()
    assert ended.value.code == 1
    assert re.fullmatch(f"horovodjob_trainer: {sentence}.*\n", capfd.readouterr().err)
