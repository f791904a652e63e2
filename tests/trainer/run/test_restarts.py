"""What a later start of a script's run finds again: its settings, its data, and the states of its callbacks."""

import json
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs" / "restarts.py"


@pytest.fixture(scope="module")
def found(run: Any, preloaded_python: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("restarts")
    ended = run(1, [*preloaded_python, str(PROGRAM), str(directory)])
    assert ended.code == 0, ended.stderr
    read: dict[str, Any] = json.loads((directory / "found.json").read_text())
    return read | {"output": ended.stdout}


def test_a_setting_that_the_script_changes_has_its_new_value(found: dict[str, Any]) -> None:
    assert found["rate"] == pytest.approx([0.02, 0.1, 16])
    assert found["rate again"] == pytest.approx(0.02)
    assert found["scale"] == pytest.approx([32, 0.05])
    assert "learning rate of the script is now 0.02, before it was 0.1: the run continues with 0.02" in found["output"]
    missing = "a different network or optimizer: only the script has sequential_dense_kernel_momentum and 1 more; start"
    assert missing in found["other variables"]


def test_a_learning_rate_can_become_a_schedule_and_a_number_again(found: dict[str, Any]) -> None:
    assert found["number to schedule"] == pytest.approx([0.5 * 0.5**1.6, 16])
    assert found["schedule to number"] == pytest.approx([0.3, 20])
    assert found["pair"] == [pytest.approx(each) for each in ([0.1, 0.2], [0.05, 0.5], [0.4, 0.5], [0.3, 0.6])]
    assert "optimizer: only the run has sequential_dense_kernel_momentum and 1 more" in found["other optimizer"]


def test_a_rate_that_a_callback_has_changed_is_that_of_the_run(found: dict[str, Any]) -> None:
    assert found["reduced"] == pytest.approx(0.05)
    assert found["scheduled"] == pytest.approx(0.025)  # not applied again in the epoch that continues


def test_a_generator_is_made_again_or_the_run_ends_with_a_sentence(found: dict[str, Any]) -> None:
    assert (found["generator"], found["loop"], found["continued"]) == (21, 21, 21)
    ends = {"exhausted": (4, 2), "exact error": (1, 2)}
    for name, (step, epoch) in ends.items():
        assert found.get(name, "").startswith(f"DataError: the data has ended before step {step} of epoch {epoch}, and")


def test_another_order_at_the_end_of_an_epoch_is_an_error_that_can_be_ignored(found: dict[str, Any]) -> None:
    assert found["order error"].startswith("JobError the dataset has other batches than the run had before it was")
    assert found["order ignored"] == 20


def test_callbacks_continue_with_their_states(found: dict[str, Any]) -> None:
    states = found["callbacks"]
    assert states["best"] == [1, 1, 1]
    assert states["best file kept"]
    assert (states["seen"], states["marks"]) == ([0, 1, 2, 3, 4], [5, 5])
    assert states["rows"] == ["epoch", *"01234"]
    assert [states["seen"], states["stopped"], states["rate"]] == states["whole"]
    assert states["as whole"] == [True, True]
    assert found["complete"] == [1, [0, 1, 2, 3, 4], [3, 1, 2, 2.5, 1.5]]


def test_more_epochs_continue_a_run_that_a_callback_has_ended(found: dict[str, Any]) -> None:
    assert found["more epochs"] == [[*range(7)], [3, 1, 2, 2.5, 1.5, 9, 9]]


def test_arguments_of_callbacks_that_the_script_changes_have_their_new_values(found: dict[str, Any]) -> None:
    # A threshold counts if no epoch has passed the one before, or if it is better than the best epoch.
    assert found["monitors"] == [1, 2, 1, 2.4, 2.4, 2.5, 2.4]
    assert "ModelCheckpoint monitors val_loss (max) now and monitored val_loss (min) before" in found["output"]
    assert "EarlyStopping restores the best weights now, and the run has not kept them: its best" in found["output"]


def test_callbacks_that_a_run_cannot_keep_are_refused(found: dict[str, Any]) -> None:
    assert found["backup error"].endswith("the run itself continues; remove BackupAndRestore")
    assert found["half error"] == "ValueError: the callback Half needs both get_run_state and set_run_state"


@pytest.mark.parametrize("kind", ["kept run", "callback", "loop"])
def test_the_speed_of_an_epoch_excludes_its_validation(found: dict[str, Any], kind: str) -> None:
    reported, measured = found["seconds"][kind]
    assert reported < measured + 1
