"""Failures that a sentence explains, sorted by who can mend them."""


class TrainerError(Exception):
    """Root of the errors whose text is meant for the user; anything else is a bug and keeps its traceback."""


class UsageError(TrainerError):
    """The command line asks for something impossible."""


class DataError(TrainerError):
    """The data set is missing, damaged or of another layout."""


class OutputError(TrainerError):
    """The output directory cannot be used."""
