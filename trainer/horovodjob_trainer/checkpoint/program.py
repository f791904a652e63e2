"""The programs that keep runs, the training program and scripts, and how messages name their settings."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Program:
    """How messages of a program name its settings; by default, those of the training program.

    With `keeps_run`, the first attempt of a job also refuses to leave an unfinished run with other settings.
    """

    resume_continue: str = "--resume continue"
    resume_never: str = "--resume never"
    failure_seconds: str = "--checkpoint-failure-seconds"
    learning_rate: str = "--learning-rate"
    another_directory: str = "another --dir"
    volume: str = "the volume of --dir"
    keeps_run: bool = False


TRAINER = Program()
SCRIPT = Program(
    resume_continue='resume="continue"',
    resume_never='resume="never"',
    failure_seconds="failure_seconds",
    learning_rate="learning rate",
    another_directory="another directory",
    volume="its volume",
    keeps_run=True,
)
