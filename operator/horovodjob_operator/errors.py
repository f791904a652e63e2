"""Errors, sorted by remedy.

OperatorError
├── InvalidJob             the objects of the job cannot be built: a condition informs the user
├── AdmissionConflict      the admission of its queue contradicts the job: the job fails
└── ClusterError           a request to the API server failed
    ├── Refused            the request is not acceptable; its reason says who can correct it: a condition
    ├── AlreadyExists      another object has the name
    ├── NameInUse          an object that Kubernetes is about to delete has the name: the creation is tried again
    ├── Conflict           the object has changed, or has another UID: the next event brings the new version
    ├── Gone               the object or its namespace does not exist: nothing remains to do
    │   └── NotServed      the API server does not serve objects of this kind
    └── Unavailable        a temporary failure: the reconciliation is tried again
"""

from horovodjob.api.constants import Reason


class OperatorError(Exception):
    """Base of all errors of the operator."""


class InvalidJob(OperatorError):
    """The objects of the job cannot be built; the message is a sentence for its author."""


class AdmissionConflict(OperatorError):
    """The admission of a queue contradicts the job; the message is a sentence for its author."""


class ClusterError(OperatorError):
    """A request to the API server that failed."""


class Refused(ClusterError):
    """The API server refuses the request: as invalid, by an admission, over a quota, or for lack of rights."""

    def __init__(self, message: str, reason: Reason = Reason.INVALID_SPEC) -> None:
        super().__init__(message)
        self.reason = reason


class AlreadyExists(ClusterError):
    """An object with this name exists."""


class NameInUse(ClusterError):
    """An object of an earlier job or attempt still has the name; Kubernetes deletes it soon."""


class Conflict(ClusterError):
    """The object has another resource version or another UID than the request requires."""


class Gone(ClusterError):
    """The object, or its namespace, does not exist or is being deleted."""


class NotServed(Gone):
    """The API server does not serve objects of this kind."""


class Unavailable(ClusterError):
    """The API server is overloaded, restarts or cannot be reached."""
