"""Operations on a share of Azure Files, through azure-storage-file-share."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

import requests
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.core.pipeline.transport import RequestsTransport
from azure.storage.fileshare import (
    ExponentialRetry,
    FileSasPermissions,
    ShareClient,
    ShareDirectoryClient,
    ShareFileClient,
    generate_file_sas,
)

from horovodjob.azurefiles.credentials import Account
from horovodjob.azurefiles.error_translation import translate_errors
from horovodjob.azurefiles.errors import AlreadyExists, DirectoryNotFound, FileNotFound
from horovodjob.azurefiles.files import Entry, FileState, Part
from horovodjob.azurefiles.location import check_share_name, share_path

# The oldest version that accepts tokens for shares too: private and sovereign clouds lag behind the newest.
API_VERSION = "2024-11-04"
SCOPE = "https://storage.azure.com/.default"
# Seconds: the SDK's own first delay is 15 s.
RETRIES: dict[str, Any] = {
    "initial_backoff": 0,
    "increment_base": 2,
    "random_jitter_range": 1,
    "retry_total": 5,
    "retry_connect": 1,
}
# Seconds, as the SDK's own transport has them.
TIMEOUTS = {"connection_timeout": 20, "read_timeout": 60}
READS = 4
# Seconds before the repetitions of a request that was answered with 429, unless the answer has others.
THROTTLED_SECONDS = (1, 2, 4, 8)
LONGEST_SECONDS = 30


class Retries(ExponentialRetry):
    """Repeats what the SDK repeats, and also requests that a proxy or the service throttles."""

    def send(self, request: Any) -> Any:
        """The answer of the first request that is not throttled, or of the last."""
        send: Callable[[Any], Any] = super().send
        for seconds in THROTTLED_SECONDS:
            response = send(request)
            if response.http_response.status_code != 429:
                return response
            after = str(response.http_response.headers.get("Retry-After", ""))
            request.context.transport.sleep(min(int(after), LONGEST_SECONDS) if after.isdigit() else seconds)
        return send(request)


def new_transport() -> RequestsTransport:
    """A transport that reads proxies and certificates of the environment once.

    For small files, that is a tenth of the time of each request.
    """
    session = _Session()
    transport = RequestsTransport(session=session, **TIMEOUTS)
    transport._init_session(session)  # as the transport does with a session of its own
    return transport


class _Session(requests.Session):
    def __init__(self) -> None:
        super().__init__()
        self._settings: dict[Any, dict[str, Any]] = {}

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        """The settings for a host as they were at its first request; the SDK gives no `proxies`."""
        key = (urlsplit(url)[:2], stream, verify, cert)
        if key not in self._settings:
            self._settings[key] = super().merge_environment_settings(url, proxies, stream, verify, cert)
        return {**self._settings[key], "proxies": dict(self._settings[key]["proxies"])}


class Share:
    """One share of an account. Every method raises FilesError.

    `find_key` gives the account's key to a sign-in without a role for the files; its errors pass through. `transport`
    is that of a server.
    """

    def __init__(
        self,
        account: Account,
        name: str,
        find_key: Callable[[], str] | None = None,
        transport: RequestsTransport | None = None,
    ) -> None:
        check_share_name(name)
        self.account, self.name, self._find_key, self._transport = account, name, find_key, transport

    @cached_property
    def _client(self) -> ShareClient:
        client = self._new_client()
        if self._find_key is None or self.account.key is not None or self.account.sas is not None:
            return client
        try:
            next(client.get_directory_client("").list_directories_and_files(results_per_page=1), None)
        except HttpResponseError as error:
            if _code(error) != "AuthorizationPermissionMismatch":
                return client  # the request itself reports it
            self.account = replace(self.account, key=self._find_key(), source="the key that your sign-in may list")
            return self._new_client()
        return client

    def _new_client(self) -> ShareClient:
        credential = self.account.credential()
        if "token_intent" in credential:
            # Otherwise the client repeats a failed sign-in for a minute.
            credential["credential"].get_token(SCOPE)
        return ShareClient(
            self.account.endpoint,
            self.name,
            **credential,
            api_version=API_VERSION,
            max_single_get_size=64 << 20,  # a read is one request, so its bytes are those of one version
            retry_policy=Retries(**RETRIES),
            permit_redirects=False,  # another host would get the SAS
            transport=self._transport or new_transport(),
        )

    def create(self, quota_gib: int | None = None) -> bool:
        """Create the share; false if it already exists."""
        with translate_errors(self.account, self.name):
            try:
                self._client.create_share(quota=quota_gib)
            except ResourceExistsError as error:
                if _code(error) != "ShareAlreadyExists":
                    raise
                return False
        return True

    def check(self) -> None:
        """Raise FilesError unless the share exists and the credentials are valid."""
        with translate_errors(self.account, self.name):
            self._client.get_share_properties()

    def create_directory(self, path: str) -> bool:
        """Create the directory and its parents; false if it already exists."""
        created = False
        parts = share_path(path).split("/")
        for depth in range(1, len(parts) + 1):
            directory = "/".join(parts[:depth])
            with translate_errors(self.account, self.name, directory):
                try:
                    self._client.create_directory(directory)
                    created = True
                except ResourceExistsError:
                    created = False
        if not created and not self.is_directory(path):
            raise AlreadyExists(f"{path} on share {self.name} of storage account {self.account.name} is a file")
        return created

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory with this path."""
        with translate_errors(self.account, self.name, path):
            try:
                self._directory(path).get_directory_properties()
            except ResourceNotFoundError as error:
                if _code(error) == "ShareNotFound":
                    raise
                return False
        return True

    def lineage(self, directory: str) -> list[str]:
        """Shares have no links to directories."""
        return []

    def entries(self, directory: str, prefix: str = "") -> list[Entry]:
        """The entries of the directory with this prefix, sorted by name. Raises DirectoryNotFound."""
        path = share_path(directory)
        try:
            with translate_errors(self.account, self.name, path):
                return list(self._listing(path, prefix))
        except FileNotFound as error:
            raise DirectoryNotFound(str(error)) from error

    def state(self, path: str) -> FileState:
        """Size, ETag and id of the file."""
        with translate_errors(self.account, self.name, path):
            found = self.file(path).get_file_properties()
        return FileState(found.size, found.etag, found.file_id)

    def read(self, path: str, start: int, length: int) -> Part:
        """One ranged GET, repeated if the connection fails within the body, which the SDK does not do."""
        with translate_errors(self.account, self.name, path):
            for repeats in reversed(range(READS)):
                try:
                    return self._range(path, start, length)
                except HttpResponseError as error:
                    if not repeats or (error.status_code or 400) >= 300:
                        raise
        raise AssertionError  # for the type checker: the last read returns or raises

    def _range(self, path: str, start: int, length: int) -> Part:
        try:
            download = self.file(path).download_file(offset=start, length=length)
        except HttpResponseError as error:
            if error.status_code != 416:  # at the end of the file, and beyond
                raise
            return Part(b"", self.state(path))
        found = download.properties
        size = int(str(found.content_range).rpartition("/")[2])
        return Part(download.readall(), FileState(size, found.etag, found.file_id))

    def delete_file(self, path: str) -> None:
        """Delete the file."""
        with translate_errors(self.account, self.name, path):
            self.file(path).delete_file()

    def delete_directory(self, path: str) -> None:
        """Delete the directory, which must be empty. Raises DirectoryNotFound."""
        try:
            with translate_errors(self.account, self.name, path):
                self._directory(path).delete_directory()
        except FileNotFound as error:
            raise DirectoryNotFound(str(error)) from error

    def rename_directory(self, path: str, new_path: str) -> None:
        """Give a directory a name that no other has. Raises DirectoryNotFound."""
        try:
            with translate_errors(self.account, self.name, new_path):
                self._directory(path).rename_directory(share_path(new_path))
        except FileNotFound as error:
            # The SDK repeats a rename that succeeded if only the response was lost.
            if not self.is_directory(new_path):
                raise DirectoryNotFound(str(error)) from error

    def download_url(self, path: str, expiry: datetime) -> str | None:
        """A link that reads the file without a sign-in until `expiry`; None without the account's key."""
        if self.account.key is None:
            return None
        sas = generate_file_sas(
            self.account.name,
            self.name,
            share_path(path).split("/"),
            self.account.key,
            FileSasPermissions(read=True),
            expiry,
        )
        return f"{self.file(path).url}?{sas}"

    def file(self, path: str) -> ShareFileClient:
        """The SDK's client of a file."""
        return self._client.get_file_client(share_path(path))

    def _directory(self, path: str) -> ShareDirectoryClient:
        return self._client.get_directory_client(share_path(path))

    def _listing(self, path: str, prefix: str) -> Iterator[Entry]:
        listing = self._directory(path).list_directories_and_files(prefix or None, include=["timestamps"])
        found: list[Any] = sorted(listing, key=lambda item: item.name)
        for item in found:
            size = 0 if item.is_directory else item.size
            written = datetime.fromisoformat(str(item.last_write_time)) if item.last_write_time else None
            yield Entry(item.name, item.is_directory, size, item.last_modified, written)


def _code(error: HttpResponseError) -> object:
    """The error code of the service."""
    return getattr(error, "error_code", None)
