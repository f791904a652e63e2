"""Errors of file operations on a share, sorted by remedy; every message is a sentence for the user.

FilesError
├── InvalidLocation      a name or URL that is not valid
├── CredentialsMissing   no credentials
├── HostNotAllowed       a host that gets no credentials of the user
├── AddressRefused       an address that a server does not connect to
├── AccessDenied         key or SAS refused, no role, network rules
├── NotFound             ShareNotFound, DirectoryNotFound, FileNotFound
├── AlreadyExists
├── FileChanged          while it was transferred
└── Unavailable          no connection, or the service is busy: try again
"""


class FilesError(Exception):
    """An operation on a share is not possible."""


class InvalidLocation(FilesError):
    """A name or URL that is not valid for the service."""


class CredentialsMissing(FilesError):
    """No credentials exist."""


class HostNotAllowed(FilesError):
    """A job names a host that is neither one of Azure for the account nor allowed by the user."""


class AddressRefused(FilesError):
    """A host has an address that a server does not connect to."""


class AccessDenied(FilesError):
    """The account refuses the credentials, the operation or the network."""


class NotFound(FilesError):
    """The object at the path does not exist."""


class ShareNotFound(NotFound):
    """The share does not exist."""


class DirectoryNotFound(NotFound):
    """The directory, or the directory of the file, does not exist."""


class FileNotFound(NotFound):
    """The file does not exist, but its directory does."""


class AlreadyExists(FilesError):
    """An object with that name exists."""


class FileChanged(FilesError):
    """The file changed while it was transferred."""


class Unavailable(FilesError):
    """There is no connection, or the service cannot answer at the moment."""
