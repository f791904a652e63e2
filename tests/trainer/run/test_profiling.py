"""A TensorBoard profile of some steps, which never ends a run."""

from pathlib import Path

import tensorflow as tf

from horovodjob_trainer.run.profiling import ProfiledSteps


def run(directory: Path, steps: tuple[int, int], *, count: int, before: int = 0) -> list[str]:
    """Runs so many steps. Returns the log."""
    lines: list[str] = []
    profiled = ProfiledSteps(
        lambda batches: {"loss": tf.constant(2.0) * 2}, steps, directory, before=before, log=lines.append
    )
    for _ in range(count):
        assert float(profiled(None)["loss"]) == 4
    profiled.close()
    return lines


def test_the_profile_contains_the_steps_that_the_run_has(tmp_path: Path) -> None:
    assert run(tmp_path, (3, 9), count=5) == [f"The profile of the steps 3 to 5 is in {tmp_path}"]
    (profile,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    assert profile.stat().st_size > 0


def test_a_run_without_the_steps_says_so(tmp_path: Path) -> None:
    for before, ran in {0: "1 to 2", 5: "6 to 7"}.items():
        (line,) = run(tmp_path, (3, 4), count=2, before=before)
        assert line == f"No profile: this attempt ran the steps {ran}, and --profile-steps begins at step 3"
    assert not list(tmp_path.iterdir())


def test_a_profile_that_cannot_be_written_does_not_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (line,) = run(tmp_path / "file", (1, 2), count=3)
    assert line.startswith(f"Training continues without a profile in {tmp_path}/file: ")
