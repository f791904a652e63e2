"""The programs that keep runs, with what differs between them below the training itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Program:
    """How messages of a program name its settings.

    With `keeps_run`, the first attempt of a job also refuses to leave an unfinished run with other settings.
    """

    resume_continue: str
    resume_never: str
    failure_seconds: str
    learning_rate: str
    another_directory: str
    volume: str
    keeps_run: bool


TRAINER = Program(
    resume_continue="--resume continue",
    resume_never="--resume never",
    failure_seconds="--checkpoint-failure-seconds",
    learning_rate="--learning-rate",
    another_directory="another --dir",
    volume="the volume of --dir",
    keeps_run=False,
)
SCRIPT = Program(
    resume_continue='resume="continue"',
    resume_never='resume="never"',
    failure_seconds="failure_seconds",
    learning_rate="learning rate",
    another_directory="another directory",
    volume="its volume",
    keeps_run=True,
)
