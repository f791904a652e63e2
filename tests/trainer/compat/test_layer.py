"""The environment of a script, and the errors for unsupported features."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer.support.tensorflow_notice import without_notice
from trainer.support.waiting import TIMEOUT_SECONDS

KERAS = version("tf-keras")
EXAMPLE = Path(__file__).parents[1] / "hvd" / "examples" / "keras_mnist.py"
# Without these capabilities, root cannot read any file.
CAPABILITIES = "-dac_override,-dac_read_search"
WITHOUT_CAPABILITIES = ("setpriv", f"--bounding-set={CAPABILITIES}") if os.geteuid() == 0 else ()


@pytest.fixture
def alone(environment: Mapping[str, str], tmp_path: Path) -> Callable[..., Any]:
    """Runs a program without mpirun."""

    def ended(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )

    return ended


def test_a_script_runs_as_with_python_itself(
    alone: Callable[..., Any], fresh_compat: Callable[..., list[str]], programs: Path, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mirror.py").symlink_to(programs / "mirror.py")
    arguments = ["./folder/mirror.py", "--max-epochs", "two words", "-h"]
    plain, layered = alone([sys.executable, *arguments]), alone(fresh_compat(*arguments))
    assert layered.stdout == plain.stdout
    assert "line 13, in fails" in plain.stderr
    assert without_notice(layered.stderr) == plain.stderr
    assert layered.returncode == plain.returncode == 1


def test_supported_names_work_and_unsupported_names_raise_an_error(
    alone: Callable[..., Any], compat: Callable[..., list[str]], programs: Path
) -> None:
    ended = alone(compat("--threads", "1", programs / "tensorflow_1.py"))
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert [line for line in lines if not line.startswith("REJECTED")] == [
        "THREADS 1 3",
        "HAS False True",
        "OPTIMIZERS 1.0 0.5 0.25",
        "OPTIMIZERS 1.0 0.5 0.25",
        f"KERAS {KERAS} True True",
    ]
    named = ["tf.Session().run", "'with tf.Session()'", "tf.placeholder", "K.get_session()"]
    expected = [f"REJECTED NotSupported {name} belongs to TensorFlow 1, of which" for name in named]
    expected += [
        f"REJECTED ModuleNotFoundError keras.layers.core is not in Keras {KERAS}, which runs this script; ",
        "REJECTED AttributeError module 'tens",
    ]
    rejected = [line for line in lines if line.startswith("REJECTED")]
    assert all(line.startswith(start) for line, start in zip(rejected, expected, strict=True)), rejected
    sentence = "gpu_options.per_process_gpu_memory_fraction of tf.ConfigProto is not supported and has no effect"
    assert without_notice(ended.stderr) == f"horovodjob_trainer.compat: {sentence}\n"


def test_a_script_that_uses_its_callbacks_is_not_patched_and_files_are_written_once(
    run: Callable[..., Any], compat: Callable[..., list[str]], programs: Path, tmp_path: Path
) -> None:
    ended = run(2, compat(programs / "two_trainings.py", tmp_path))
    assert ended.code == 0, ended.stderr
    # Only the second training has callbacks.
    assert sorted(re.findall(r"CALLED \d \d", ended.stdout)) == ["CALLED 0 6", "CALLED 1 6"]
    folder = tmp_path / "made" / "by" / "all"
    assert sorted(path.name for path in folder.iterdir()) == ["model.h5", "weights"]
    assert (folder / "weights").read_bytes()[1:4] == b"HDF"
    for message in (
        "although {folder} exists",
        "every rank write {folder}/weights",
        "every rank write {folder}/model.h5",
    ):
        assert ended.stderr.count(message.format(folder=folder)) == 1, ended.stderr


def test_an_unreadable_script_and_an_invalid_option_are_rejected_in_one_sentence(
    run: Callable[..., Any], alone: Callable[..., Any], fresh_compat: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / "locked.py").write_text("print('never')")
    (tmp_path / "locked.py").chmod(0)
    cases = {
        ("missing.py",): "cannot read the script 'missing.py': No such file or directory",
        (".",): "cannot read the script '.': Is a directory",
        (): "the following arguments are required: SCRIPT",
        ("--max-epochs", "0", "x.py"): "--max-epochs: '0' is not a whole number from 1 to 1000000000",
        ("--dataset", "digits", "--archive", "a", "x.py"): "--archive belongs to --dataset cifar10 or cifar100, not to "
        "digits",
    }
    for arguments, sentence in cases.items():
        ended = alone(fresh_compat(*arguments))
        assert (ended.returncode, ended.stderr) == (2, f"horovodjob_trainer.compat: {sentence}\n")
    ended = alone([*WITHOUT_CAPABILITIES, *fresh_compat("locked.py")])
    assert (ended.returncode, ended.stderr.count("locked.py': Permission denied\n")) == (2, 1)
    ended = run(2, fresh_compat("missing.py"), {"TRAINER_EPOCHS": "3"})
    errors = [line for line in ended.stderr.splitlines() if line.startswith("horovodjob_trainer")]
    assert ended.code == 2
    assert errors == [
        "horovodjob_trainer.compat: the environment variable TRAINER_EPOCHS is not an option; --help lists all options"
    ]


def test_missing_data_ends_the_script_with_one_sentence(
    alone: Callable[..., Any], compat: Callable[..., list[str]], tutorial: Path
) -> None:
    ended = alone(compat("--archive", "gone.tar.gz", tutorial, "--dir", "."))
    sentence = "gone.tar.gz does not exist; give another --archive"
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (1, f"horovodjob_trainer.compat: {sentence}")
    assert "Traceback" not in ended.stderr


def test_a_script_with_the_shape_of_an_example_of_horovod_runs_and_synchronizes(
    run: Callable[..., Any], compat: Callable[..., list[str]], tmp_path: Path
) -> None:
    ended = run(2, compat("--threads", "1", EXAMPLE, tmp_path))
    assert ended.code == 0, ended.stderr
    ranks = [np.load(tmp_path / f"weights-{rank}.npz") for rank in range(2)]
    assert all(np.array_equal(*(rank[name] for rank in ranks)) for name in ranks[0])
    assert (tmp_path / "checkpoint-1.h5").exists()
