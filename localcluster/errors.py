"""Errors of the local cluster, sorted by remedy."""


class ClusterError(Exception):
    """One sentence for the person at the terminal: what is wrong, and what to do if that is known."""


class MachineUnfit(ClusterError):
    """This machine lacks something that only its owner can provide."""
