"""Failures that a sentence explains, sorted by who can mend them."""


class TrainerError(Exception):
    """Root of the errors whose text is meant for the user; anything else is a bug and keeps its traceback."""

    exit_code = 1


class UsageError(TrainerError):
    """A setting asks for something impossible."""

    exit_code = 2


class DataError(TrainerError):
    """The data set is missing, damaged or of another layout."""


class ModelError(TrainerError):
    """The model cannot be built or does not fit the data."""


class OutputError(TrainerError):
    """The output directory cannot be used."""


class JobError(TrainerError):
    """Some rank met an error that a sentence explains; every rank raises it."""


class NonFiniteLoss(JobError):
    """The loss is no number any more."""

    exit_code = 3


class RanksDiffer(JobError):
    """The ranks' weights are not the same."""

    exit_code = 4


class Terminated(JobError):
    """SIGTERM came, and the run stopped where it can go on."""

    exit_code = 143
