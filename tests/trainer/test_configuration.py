"""The command line: defaults are the tutorial's, and the impossible is refused in one sentence."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from horovodjob_trainer.configuration import CIFAR10_SHA256, DatasetName, configuration
from horovodjob_trainer.errors import UsageError
from horovodjob_trainer.launch import Launch, threads_per_rank, usable_cores

SHA256 = "0" * 64


def refusal(*arguments: str, world_size: int = 1) -> str:
    with pytest.raises(UsageError) as raised:
        configuration(arguments, world_size=world_size)
    return str(raised.value)


def test_without_flags_it_trains_the_tutorials_way() -> None:
    run = configuration([], world_size=1)
    assert (run.dataset, run.epochs, run.batch_size) == (DatasetName.CIFAR10, 100, 32)
    assert (run.learning_rate, run.decay, run.augment, run.flip) == (1e-4, 1e-6, True, True)
    assert (run.archive_sha256, run.directory) == (CIFAR10_SHA256, Path("."))


@pytest.mark.parametrize(("ranks", "epochs"), [(1, 100), (2, 50), (3, 34), (4, 25), (100, 1), (1000, 1)])
def test_the_tutorials_hundred_epochs_are_shared_by_the_ranks(ranks: Any, epochs: int) -> None:
    assert configuration([], world_size=ranks).epochs == epochs


def test_given_epochs_are_not_divided() -> None:
    assert configuration(["--epochs", "7"], world_size=4).epochs == 7


def test_digits_are_never_mirrored() -> None:
    assert configuration(["--dataset", "digits"], world_size=1).augment
    assert not configuration(["--dataset", "digits"], world_size=1).flip


def test_without_augmentation_nothing_is_mirrored_either() -> None:
    run = configuration(["--no-augment"], world_size=1)
    assert (run.augment, run.flip) == (False, False)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--epochs", "0"], "--epochs: '0'"),
        (["--epochs", "1e3"], "--epochs: '1e3'"),
        (["--epochs", "9" * 5000], "--epochs"),
        (["--batch-size", "-1"], "--batch-size: '-1'"),
        (["--batch-size", ""], "--batch-size: ''"),
        (["--learning-rate", "0"], "--learning-rate: '0'"),
        (["--learning-rate", "nan"], "--learning-rate: 'nan'"),
        (["--learning-rate", "inf"], "--learning-rate: 'inf'"),
        (["--decay", "-0.1"], "--decay: '-0.1'"),
        (["--seed", "2147483648"], "--seed: '2147483648'"),
        (["--threads", "0"], "--threads: '0'"),
        (["--log-seconds", "0"], "--log-seconds: '0'"),
        (["--dataset", "mnist"], "'mnist'"),
        (["--dir", ""], "--dir: the path is empty"),
        (["--unknown"], "--unknown"),
        (["--epoch", "3"], "--epoch"),
        (["stray"], "stray"),
        (["--archive-url", "file:///etc/passwd"], "'file:///etc/passwd'"),
        (["--archive-sha256", "abc"], "'abc'"),
        (["--archive-sha256", "any"], "needs --archive"),
        (["--archive", "a", "--archive-url", "http://host/a"], "two sources"),
        (["--dataset", "digits", "--archive", "a"], "--archive belongs to --dataset cifar10"),
        (["--dataset", "digits", "--archive-sha256", SHA256], "--archive-sha256 belongs"),
        (["--epochs", "3", "--warmup-epochs", "4"], "more than the 3 epochs"),
    ],
)
def test_the_impossible_is_refused_in_one_line_that_names_it(arguments: Any, named: Any) -> None:
    sentence = refusal(*arguments)
    assert named in sentence
    assert "\n" not in sentence


def test_a_warm_up_is_compared_with_the_epochs_that_this_many_ranks_get() -> None:
    configuration(["--warmup-epochs", "26"], world_size=1)
    assert "more than the 25 epochs" in refusal("--warmup-epochs", "26", world_size=4)


def test_every_flag_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        configuration(["--help"], world_size=1)
    assert raised.value.code == 0
    shown = capsys.readouterr().out
    for flag in re.findall(r"--[a-z][a-z0-9-]+", shown):
        assert re.search(rf"{flag}\b[^\n]*\s+\S", shown)


def test_reading_the_command_line_loads_neither_tensorflow_nor_horovod(
    run: Callable[..., Any], environment: dict[str, str]
) -> None:
    program = (
        "import sys; sys.argv[1:] = ['--help']\n"
        "try:\n    import horovodjob_trainer.__main__ as m; m.main()\n"
        "except SystemExit: assert not {'tensorflow', 'keras', 'horovod'} & set(sys.modules), 'loaded'\n"
    )
    assert run(1, [sys.executable, "-c", program]).code == 0


@pytest.mark.parametrize(
    ("environment", "launch"),
    [
        ({}, Launch()),
        (
            {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"},
            Launch(rank=3, size=8, local_size=4),
        ),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_SIZE": "2"}, Launch(1, 2, 2)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "HOROVODJOB_ATTEMPT": "3"}, Launch(1, 2, 1, 3)),
        ({"HOROVODJOB_ATTEMPT": "nonsense"}, Launch()),
    ],
)
def test_a_rank_knows_itself_from_any_launcher(environment: dict[str, str], launch: Any) -> None:
    assert Launch.from_environment(environment) == launch


@pytest.mark.parametrize(("ranks", "cores", "threads"), [(1, 8, 8), (2, 8, 4), (3, 8, 2), (8, 2, 1)])
def test_the_ranks_of_a_node_divide_its_cores(ranks: Any, cores: int, threads: int) -> None:
    assert threads_per_rank(Launch(local_size=ranks), cores) == threads


def test_a_containers_cpu_limit_counts_as_its_cores(tmp_path: Path) -> None:
    limit = tmp_path / "cpu.max"
    unlimited = usable_cores(tmp_path / "absent")
    limit.write_text("100000 100000\n")
    assert usable_cores(limit) == 1
    limit.write_text("max 100000\n")
    assert usable_cores(limit) == unlimited
