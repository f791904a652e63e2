"""The fake of Azure Files responds as the service does: the SDK runs against it unpatched."""

import io
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential
from azure.core.exceptions import HttpResponseError
from azure.storage.fileshare import (
    ShareClient,
    ShareServiceClient,
    generate_account_sas,
    generate_file_sas,
    generate_share_sas,
)

from support.azure_fakes.entra.server import Entra
from support.azure_fakes.files.accounts import Account, DataRole, new_key
from support.azure_fakes.files.server import FilesService

SOON = timedelta(hours=1)
CLIENT = "11111111-0000-4000-8000-00000000000f"


@pytest.fixture
def client(service: FilesService) -> ShareServiceClient:
    """The SDK with the account's key."""
    return ShareServiceClient.from_connection_string(service.connection_string("train"), retry_total=0)


@pytest.fixture
def myshare(client: ShareServiceClient) -> ShareClient:
    """The SDK's client of the share."""
    return client.get_share_client("myshare")


def error_of(action: Callable[[], Any]) -> tuple[int | None, str]:
    """Status and error code of the response of the service."""
    with pytest.raises(HttpResponseError) as raised:
        action()
    code = getattr(raised.value, "error_code", "")
    return raised.value.status_code, str(getattr(code, "value", code))


def test_shares_are_created_listed_and_deleted(client: ShareServiceClient) -> None:
    client.create_share("other", quota=7)
    assert {share.name: share.quota for share in client.list_shares()} == {"myshare": 5120, "other": 7}
    client.delete_share("other")
    assert [share.name for share in client.list_shares()] == ["myshare"]


def test_errors_have_the_codes_of_the_service(client: ShareServiceClient, myshare: ShareClient) -> None:
    myshare.create_directory("a")
    file = myshare.get_file_client("a/f")
    assert error_of(lambda: client.create_share("myshare")) == (409, "ShareAlreadyExists")
    assert error_of(lambda: client.create_share("My_Share")) == (400, "InvalidResourceName")
    assert error_of(lambda: client.delete_share("nothing")) == (404, "ShareNotFound")
    assert error_of(lambda: myshare.create_directory("a")) == (409, "ResourceAlreadyExists")
    assert error_of(lambda: myshare.create_directory("b/c")) == (404, "ParentNotFound")
    assert error_of(lambda: myshare.delete_directory("b")) == (404, "ResourceNotFound")
    assert error_of(file.get_file_properties) == (404, "ResourceNotFound")
    file.upload_file(b"x")
    assert error_of(lambda: myshare.delete_directory("a")) == (409, "DirectoryNotEmpty")
    assert error_of(lambda: myshare.get_file_client("a").create_file(1)) == (409, "ResourceTypeMismatch")


def test_files_are_written_and_read_in_ranges(myshare: ShareClient, disk: Path) -> None:
    data = os.urandom(9 << 20)
    file = myshare.get_file_client("ü #%+&.bin")
    file.upload_file(io.BytesIO(data), length=len(data), max_concurrency=3)
    assert (disk / "ü #%+&.bin").read_bytes() == data
    assert file.download_file(max_concurrency=3).readall() == data
    assert file.download_file(offset=5, length=7).readall() == data[5:12]


def test_a_range_beyond_the_end_of_a_file_is_rejected(myshare: ShareClient, disk: Path) -> None:
    (disk / "f").write_bytes(b"12345")
    file = myshare.get_file_client("f")
    assert file.download_file(offset=3, length=100).readall() == b"45"
    assert error_of(lambda: file.download_file(offset=5, length=1)) == (416, "InvalidRange")
    assert error_of(lambda: file.upload_range(b"67", offset=5, length=2)) == (416, "InvalidRange")
    file.resize_file(7)
    file.upload_range(b"67", offset=5, length=2)
    assert (disk / "f").read_bytes() == b"1234567"


def test_an_etag_changes_with_the_content_and_an_id_with_the_file(myshare: ShareClient, disk: Path) -> None:
    (disk / "f").write_text("1")
    file = myshare.get_file_client("f")
    first = file.get_file_properties()
    assert file.get_file_properties().etag == first.etag
    (disk / "f").write_text("12")
    second = file.get_file_properties()
    (disk / "g").write_text("12")
    (disk / "g").replace(disk / "f")
    third = file.get_file_properties()
    assert (second.etag != first.etag, second.file_id, second.creation_time) == (
        True,
        first.file_id,
        first.creation_time,
    )
    assert third.file_id != second.file_id


def test_a_rename_replaces_a_file_only_on_request(myshare: ShareClient, disk: Path) -> None:
    (disk / "old").write_text("old")
    (disk / "new").write_text("new")
    file = myshare.get_file_client("old")
    assert error_of(lambda: file.rename_file("new")) == (409, "ResourceAlreadyExists")
    file.rename_file("new", overwrite=True)
    assert {path.name: path.read_text() for path in disk.iterdir()} == {"new": "old"}


def test_a_listing_is_paged(myshare: ShareClient, disk: Path) -> None:
    for number in range(7):
        (disk / f"f{number}").touch()
    (disk / "d").mkdir()
    pages = myshare.list_directories_and_files(results_per_page=3, include=["timestamps"]).by_page()
    listed = [[item.name for item in page] for page in pages]
    assert listed == [["d", "f0", "f1"], ["f2", "f3", "f4"], ["f5", "f6"]]
    assert [item.name for item in myshare.list_directories_and_files(name_starts_with="f6")] == ["f6"]


def test_a_listing_has_times_only_on_request(myshare: ShareClient, disk: Path) -> None:
    (disk / "f").write_text("123")
    plain: Any = next(myshare.list_directories_and_files())
    timed: Any = next(myshare.list_directories_and_files(include=["timestamps"]))
    assert (plain.size, plain.last_modified) == (3, None)
    assert abs(timed.last_modified - datetime.now(UTC)) < timedelta(minutes=5)


def test_a_wrong_key_is_rejected_and_both_keys_work(service: FilesService) -> None:
    account = service.accounts["train"]

    def exists(key: str) -> Any:
        credential = AzureNamedKeyCredential("train", key)
        return ShareClient(service.url("train"), "myshare", credential=credential).get_share_properties().name

    assert [exists(key) for key in account.keys] == ["myshare", "myshare"]
    old = account.key
    account.rotate()
    assert exists(account.key) == "myshare"
    for key in (old, new_key()):
        assert error_of(lambda key=key: exists(key)) == (403, "AuthenticationFailed")  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, None),
        ({"expiry": datetime.now(UTC) - SOON}, "AuthenticationFailed"),
        ({"start": datetime.now(UTC) + SOON}, "AuthenticationFailed"),
        ({"account_key": new_key()}, "AuthenticationFailed"),
        ({"permission": "w"}, "AuthorizationPermissionMismatch"),
    ],
)
def test_a_sas_of_a_file_is_checked(
    service: FilesService, disk: Path, changes: dict[str, Any], code: str | None
) -> None:
    (disk / "f").write_text("text")
    key, expiry = service.accounts["train"].key, datetime.now(UTC) + SOON
    settings: dict[str, Any] = {"account_key": key, "permission": "r", "expiry": expiry}
    sas = generate_file_sas("train", "myshare", ["f"], **settings | changes)
    file = ShareClient(service.url("train"), "myshare", credential=sas).get_file_client("f")
    if code is None:
        assert file.download_file().readall() == b"text"
    else:
        assert error_of(file.download_file) == (403, code)


def test_a_sas_grants_only_its_scope(service: FilesService) -> None:
    key, expiry = service.accounts["train"].key, datetime.now(UTC) + SOON
    of_share = generate_share_sas("train", "myshare", key, "rcwl", expiry)
    of_account = generate_account_sas("train", key, "co", "rl", expiry)
    limited = ShareClient(service.url("train"), "myshare", credential=of_share)
    limited.create_directory("a")
    assert [item.name for item in limited.list_directories_and_files()] == ["a"]
    assert error_of(limited.delete_share) == (403, "AuthorizationFailure")
    assert error_of(lambda: limited.delete_directory("a")) == (403, "AuthorizationPermissionMismatch")
    reading = ShareServiceClient(service.url("train"), credential=of_account)
    assert [item.name for item in reading.get_share_client("myshare").list_directories_and_files()] == ["a"]
    assert error_of(lambda: list(reading.list_shares())) == (403, "AuthorizationResourceTypeMismatch")
    assert error_of(lambda: reading.create_share("b")) == (403, "AuthorizationPermissionMismatch")


class Token:
    """A credential with one token."""

    def __init__(self, token: str) -> None:
        self._token = token

    def get_token(self, *_: str, **__: Any) -> AccessToken:
        return AccessToken(self._token, int(datetime.now(UTC).timestamp()) + 3600)


def test_a_token_requires_audience_lifetime_intent_and_role(tmp_path: Path) -> None:
    account = Account("train", tmp_path / "shares")
    account.directory.mkdir()
    storage = "https://storage.azure.com"
    with (
        Entra(tmp_path) as entra,
        FilesService([account], tls=tmp_path, claims=entra.claims) as service,
    ):
        token = entra.token(CLIENT, storage)

        def create(token: str, intent: Any = "backup") -> Any:
            share = ShareClient(
                *(service.url("train"), "myshare"),
                credential=Token(token),
                token_intent=intent,
                connection_verify=str(service.certificate),
                api_version="2024-11-04",
            )
            return share.create_share()

        assert error_of(lambda: create(token)) == (403, "AuthorizationPermissionMismatch")
        oid = entra.claims(token, storage)["oid"]
        account.roles[oid] = DataRole.READER
        assert error_of(lambda: create(token)) == (403, "AuthorizationPermissionMismatch")
        account.roles[oid] = DataRole.CONTRIBUTOR
        assert error_of(lambda: create(entra.token(CLIENT, "https://management.azure.com")))[0] == 401
        assert error_of(lambda: create(entra.token(CLIENT, storage, expires_in=-60)))[0] == 401
        assert create(token)["etag"]


def test_an_account_can_reject_keys_and_networks(service: FilesService, myshare: ShareClient) -> None:
    account = service.accounts["train"]
    account.allows_keys = False
    assert error_of(myshare.get_share_properties) == (403, "KeyBasedAuthenticationNotPermitted")
    account.allows_keys, account.firewalled = True, True
    assert error_of(myshare.get_share_properties) == (403, "AuthorizationFailure")


def test_the_account_can_be_in_the_host_name(
    service: FilesService, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{service.port}")
    key = AzureNamedKeyCredential("train", service.accounts["train"].key)
    share = ShareClient("http://train.file.core.windows.net", "myshare", credential=key)
    share.get_file_client("a b").upload_file(b"text")
    assert (disk / "a b").read_text() == "text"
    assert [item.name for item in share.list_directories_and_files()] == ["a b"]
