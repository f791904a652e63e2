"""The errors of the local cluster."""


class ClusterError(Exception):
    """A command failed; the message is one sentence with the cause, and the remedy if it is known."""


class MachineError(ClusterError):
    """This machine lacks something that only its owner can provide."""
