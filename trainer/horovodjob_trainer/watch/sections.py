"""The parts of a training, and how long each of them can be without progress. Pure.

The limits avoid false alarms, after which nobody trusts a true one. An automatic limit is ten times as long as the
section has taken so far, and at least five minutes, because nobody reacts earlier. What this start has never done has
a limit of its own: the first step compiles, and libraries try algorithms for minutes.
"""

from enum import IntEnum

FACTOR = 10.0
LEAST_SECONDS = 300.0
UNKNOWN_SECONDS = 1800.0
START_SECONDS = 3600.0
SETUP_SECONDS = 4 * 3600.0  # the trainer can decode all images of a data set into memory


class Section(IntEnum):
    """The part of a training that a rank is in."""

    OUTSIDE = 0
    START = 1
    INPUT = 2
    STEP = 3
    VALIDATION = 4
    CHECKPOINT = 5
    EPOCH_END = 6  # the callbacks of `fit` after an epoch, or the last step of an epoch in a loop, and what follows it
    SETUP = 7  # the trainer loads the data and builds the model
    SAVING = 8  # the trainer saves the trained model


def limit_seconds(section: Section, longest: float, steps: float, given: float | None = None) -> float:
    """How long a section may be without progress before the training counts as stalled.

    `given` replaces the automatic limits after the second step.
    """
    if given is not None and steps > 1:
        return given
    if section is Section.SETUP:
        return SETUP_SECONDS
    if section is Section.START or (section is Section.STEP and steps < 2):
        return START_SECONDS
    if not longest:
        return UNKNOWN_SECONDS
    return max(LEAST_SECONDS, FACTOR * longest)
