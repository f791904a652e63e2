"""What can go wrong with files on a share, sorted by remedy; every message is a sentence for the user.

FilesError
├── InvalidLocation      a name or URL that cannot be
├── CredentialsMissing   nothing to sign in with
├── AccessDenied         key or SAS refused, no role, network rules
├── NotFound             ShareNotFound, DirectoryNotFound, FileNotFound
├── AlreadyExists
├── FileChanged          while it was transferred
└── Unavailable          no connection, or the service is busy: trying again helps
"""


class FilesError(Exception):
    """An operation on a share is not possible."""


class InvalidLocation(FilesError):
    """A name or URL that the service does not have."""


class CredentialsMissing(FilesError):
    """There is nothing to sign in with."""


class AccessDenied(FilesError):
    """The account refuses the credentials, the operation or the network."""


class NotFound(FilesError):
    """What the path names does not exist."""


class ShareNotFound(NotFound):
    """The share does not exist."""


class DirectoryNotFound(NotFound):
    """The directory does not exist, or that of the file."""


class FileNotFound(NotFound):
    """The file does not exist, its directory does."""


class AlreadyExists(FilesError):
    """Something of that name exists."""


class FileChanged(FilesError):
    """The file changed while it was transferred."""


class Unavailable(FilesError):
    """There is no connection, or the service cannot answer now."""
