"""The errors of the release's commands."""


class ReleaseError(Exception):
    """A part of the release cannot be built; the message is for the person who asked for it."""
