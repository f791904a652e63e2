"""Selection of the credentials for a storage account."""

from collections.abc import Mapping
from typing import Any

import pytest

from horovodjob.azurefiles.credentials import Account, Options, choose_account
from horovodjob.azurefiles.errors import CredentialsMissing, FilesError

STRING = "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=c3RyaW5n;EndpointSuffix=core.windows.net"
FAKE = "AccountName=acc;AccountKey=c3RyaW5n;FileEndpoint=http://127.0.0.1:10004/acc/"
BATCHAI = {"AZURE_BATCHAI_STORAGE_ACCOUNT": "acc", "AZURE_BATCHAI_STORAGE_KEY": "batchai"}
STORAGE = {"AZURE_STORAGE_ACCOUNT": "acc", "AZURE_STORAGE_KEY": "storage"}
SECRET = {"azurestorageaccountname": "acc", "azurestorageaccountkey": "secret\n"}
PUBLIC = "https://acc.file.core.windows.net"


def selected_account(options: Options, environment: Mapping[str, str], **settings: Any) -> Account:
    """The account `acc`, with the Secret."""
    return choose_account("acc", options, environment, read_secret=lambda: SECRET, secret_name="s", **settings)


@pytest.mark.parametrize(
    ("options", "environment", "key"),
    [
        (Options(connection_string=STRING, key="given"), BATCHAI, "c3RyaW5n"),
        (Options(key="given"), BATCHAI, "given"),
        (Options(), BATCHAI | STORAGE | {"AZURE_STORAGE_CONNECTION_STRING": STRING}, "batchai"),
        (Options(), STORAGE | {"AZURE_STORAGE_CONNECTION_STRING": STRING}, "storage"),
        (Options(), {"AZURE_STORAGE_KEY": "storage"}, "storage"),
        (Options(), {"AZURE_STORAGE_CONNECTION_STRING": STRING}, "c3RyaW5n"),
        (Options(), {}, "secret"),
    ],
)
def test_options_take_precedence_over_the_environment_and_that_over_the_secret(
    options: Options, environment: dict[str, str], key: str
) -> None:
    account = selected_account(options, environment)
    assert (account.name, account.endpoint, account.key) == ("acc", PUBLIC, key)


@pytest.mark.parametrize(
    "environment",
    [
        BATCHAI | {"AZURE_BATCHAI_STORAGE_ACCOUNT": "other"},
        STORAGE | {"AZURE_STORAGE_ACCOUNT": "other"},
        {"AZURE_STORAGE_CONNECTION_STRING": STRING.replace("acc", "other")},
    ],
)
def test_a_key_of_another_account_is_ignored(environment: dict[str, str]) -> None:
    assert selected_account(Options(), environment).source == "the key in Secret s"


def test_a_server_uses_neither_its_environment_nor_its_own_sign_in() -> None:
    server = Options(uses_environment=False)
    own = BATCHAI | STORAGE | {"AZURE_STORAGE_SAS_TOKEN": "sas", "AZURE_STORAGE_CONNECTION_STRING": FAKE}
    own |= {"AZURE_STORAGE_SERVICE_ENDPOINT": "https://acc.file.example.com"}
    account = selected_account(server, own)
    assert (account.source, account.endpoint, account.sas) == ("the key in Secret s", PUBLIC, None)
    for secret in ({}, SECRET | {"azurestorageaccountname": "other"}):
        with pytest.raises(CredentialsMissing, match="that you may not read"):
            choose_account("acc", server, own, read_secret=lambda found=secret: found)  # type: ignore[misc]
    with pytest.raises(CredentialsMissing, match="no storage account"):
        choose_account(None, server, own)


def test_the_secret_is_not_read_without_need() -> None:
    account = choose_account("acc", Options(key="given"), {}, read_secret=lambda: pytest.fail("it was read"))
    assert account.key == "given"


def test_a_secret_of_another_account_is_ignored() -> None:
    secret = SECRET | {"azurestorageaccountname": "other"}
    account = choose_account("acc", Options(), {}, read_secret=lambda: secret)
    assert (account.key, account.sas) == (None, None)


def test_without_a_key_entra_authentication_is_used() -> None:
    account = choose_account("acc", Options(), {})
    assert (account.key, account.sas, account.source) == (None, None, "your sign-in with Microsoft Entra ID")


def test_entra_authentication_requires_https() -> None:
    environment = {"AZURE_STORAGE_SERVICE_ENDPOINT": "http://127.0.0.1:10004/acc"}
    with pytest.raises(CredentialsMissing, match="HTTPS"):
        choose_account("acc", Options(), environment).credential()


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        (Options(account="acc"), {}),
        (Options(connection_string=STRING), {}),
        (Options(), BATCHAI),
        (Options(), {"AZURE_STORAGE_ACCOUNT": "acc"}),
        (Options(), {"AZURE_STORAGE_CONNECTION_STRING": STRING}),
    ],
)
def test_the_account_comes_from_the_options_or_the_environment(options: Options, environment: dict[str, str]) -> None:
    assert choose_account(None, options, environment).name == "acc"


def test_without_an_account_the_error_describes_how_to_set_one() -> None:
    with pytest.raises(CredentialsMissing, match="--account-name"):
        choose_account(None, Options(), {})


@pytest.mark.parametrize(
    ("environment", "default", "endpoint"),
    [
        ({}, "", PUBLIC),
        ({}, "https://acc.file.core.chinacloudapi.cn", "https://acc.file.core.chinacloudapi.cn"),
        ({"AZURE_STORAGE_SERVICE_ENDPOINT": "https://127.0.0.1:1/acc/"}, PUBLIC, "https://127.0.0.1:1/acc"),
        ({"AZURE_STORAGE_SERVICE_ENDPOINT": "https://127.0.0.1:1/other"}, "", PUBLIC),
        ({"AZURE_STORAGE_CONNECTION_STRING": FAKE}, PUBLIC, "http://127.0.0.1:10004/acc"),
    ],
)
def test_the_endpoint_can_be_that_of_another_cloud_or_of_an_emulator(
    environment: dict[str, str], default: str, endpoint: str
) -> None:
    account = choose_account("acc", Options(key="given"), environment, default_endpoint=default)
    assert (account.endpoint, account.key) == (endpoint, "given")


@pytest.mark.parametrize(
    "text",
    ["c3RyaW5nLXNlY3JldA", "AccountName=acc", "AccountKey=c3RyaW5nLXNlY3JldA", "a;AccountKey=c3RyaW5nLXNlY3JldA"],
)
def test_an_invalid_connection_string_is_rejected_and_not_shown(text: str) -> None:
    with pytest.raises(FilesError, match="--connection-string") as raised:
        choose_account(None, Options(connection_string=text), {})
    assert "c3RyaW5nLXNlY3JldA" not in str(raised.value)


def test_explicit_credentials_of_another_account_are_rejected() -> None:
    for options in (Options(account="other", key="k"), Options(connection_string=STRING.replace("acc", "other"))):
        with pytest.raises(FilesError, match="for other"):
            selected_account(options, {})


def test_secrets_are_not_in_the_text_of_an_account() -> None:
    account = selected_account(Options(key="given-key"), {})
    assert "given-key" not in f"{account} {account!r} {Options(key='given-key')!r}"
