"""Errors with a message for the user, sorted by remedy."""


class TrainerError(Exception):
    """Base class of errors with a message for the user. Other exceptions are bugs and keep their traceback."""

    exit_code = 1

    def __str__(self) -> str:
        return one_line(super().__str__())


class UsageError(TrainerError):
    """A setting is invalid."""

    exit_code = 2


class DataError(TrainerError):
    """The data set is missing, is damaged or has a different layout."""


class ModelError(TrainerError):
    """The model cannot be built or does not fit the data."""


class OutputError(TrainerError):
    """The output directory cannot be used."""


class VolumeError(OutputError):
    """The volume of the output directory refused a write, which can succeed later."""


class JobError(TrainerError):
    """An error of one rank that every rank raises."""


class NonFiniteLoss(JobError):
    """The loss is NaN or infinite."""

    exit_code = 3


class RanksDiffer(JobError):
    """The weights of the ranks differ."""

    exit_code = 4


class Terminated(JobError):
    """SIGTERM ended the run at a step from which it can be resumed."""

    exit_code = 143


def one_line(text: str) -> str:
    """The text, in which what a terminal interprets is escaped: names of files can contain line breaks."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def error_reason(error: BaseException) -> str:
    """The cause in one line, without the path or URL."""
    return " ".join(str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error).split())
