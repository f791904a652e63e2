"""Errors, sorted by remedy.

OperatorError
├── InvalidJob          the user's wish cannot be carried out: a condition tells the user
└── ClusterError        the API server did not do what it was asked
    ├── Refused         it never will, as asked: a condition tells the user
    ├── NameTaken       an object with that name is there already
    ├── Gone            the object or its namespace is no more: nothing is left to do
    │   └── NotServed   nor any object of its kind: the cluster does not have that API
    └── Unavailable     not now: the pass is tried again
"""


class OperatorError(Exception):
    """Base of all errors of the operator."""


class InvalidJob(OperatorError):
    """The job asks for what cannot be built; the message is a sentence for its author."""


class ClusterError(OperatorError):
    """An answer of the API server that was not a success."""


class Refused(ClusterError):
    """The request is not acceptable: invalid object, forbidden by policy or quota."""

    def __init__(self, message: str, *, over_quota: bool = False) -> None:
        super().__init__(message)
        self.over_quota = over_quota


class NameTaken(ClusterError):
    """Something with this name exists, or has changed in the meantime."""


class Gone(ClusterError):
    """The object, or the namespace around it, does not exist (any more)."""


class NotServed(Gone):
    """The API server does not serve objects of this kind."""


class Unavailable(ClusterError):
    """The API server is overloaded, restarting or out of reach."""
