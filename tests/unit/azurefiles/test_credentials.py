"""Selection of the credentials for a storage account."""

from collections.abc import Mapping
from typing import Any

import pytest

from horovodjob.azurefiles.credentials import Account, Options, choose_account
from horovodjob.azurefiles.errors import CredentialsMissing, FilesError, HostNotAllowed

STRING = "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=c3RyaW5n;EndpointSuffix=core.windows.net"
FAKE = "AccountName=acc;AccountKey=c3RyaW5n;FileEndpoint=http://127.0.0.1:10004/acc/"
BATCHAI = {"AZURE_BATCHAI_STORAGE_ACCOUNT": "acc", "AZURE_BATCHAI_STORAGE_KEY": "batchai"}
STORAGE = {"AZURE_STORAGE_ACCOUNT": "acc", "AZURE_STORAGE_KEY": "storage"}
SECRET = {"azurestorageaccountname": "acc", "azurestorageaccountkey": "secret\n"}
PUBLIC = "https://acc.file.core.windows.net"
ZONE = "acc.z07.file.storage.azure.net"


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
        (Options(account="acc"), {"AZURE_STORAGE_KEY": "storage"}, "storage"),
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
    own |= {"AZURE_STORAGE_SERVICE_ENDPOINT": "https://acc.file.example.com", "HVJ_STORAGE_HOSTS": "evil.test"}
    account = selected_account(server, own)
    assert (account.source, account.endpoint, account.sas) == ("the key in Secret s", PUBLIC, None)
    for secret in ({}, SECRET | {"azurestorageaccountname": "other"}):
        with pytest.raises(CredentialsMissing, match="not for you to read"):
            choose_account("acc", server, own, read_secret=lambda found=secret: found)  # type: ignore[misc]
    with pytest.raises(CredentialsMissing, match="no storage account"):
        choose_account(None, server, own)
    with pytest.raises(HostNotAllowed):
        choose_account("acc", server, own, server="evil.test", read_secret=lambda: SECRET)


def test_the_secret_is_not_read_without_need() -> None:
    account = choose_account("acc", Options("acc", key="given"), {}, read_secret=lambda: pytest.fail("it was read"))
    assert account.key == "given"


@pytest.mark.parametrize("owner", [{"azurestorageaccountname": "other"}, {}])
def test_a_secret_of_another_account_or_of_none_is_ignored(owner: dict[str, str]) -> None:
    secret = {"azurestorageaccountkey": "secret"} | owner
    account = choose_account("acc", Options(), {}, read_secret=lambda: secret)
    assert (account.key, account.sas) == (None, None)


def test_without_a_key_entra_authentication_is_used_which_requires_https() -> None:
    account = choose_account("acc", Options(), {})
    assert (account.key, account.sas, account.source) == (None, None, "your sign-in with Microsoft Entra ID")
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
    with pytest.raises(CredentialsMissing, match="`account_name=`"):
        choose_account(None, Options(), {})


@pytest.mark.parametrize(
    ("environment", "server", "endpoint"),
    [
        ({}, "", PUBLIC),
        ({}, "acc.file.core.chinacloudapi.cn", "https://acc.file.core.chinacloudapi.cn"),
        (
            {"AZURE_STORAGE_SERVICE_ENDPOINT": "https://127.0.0.1:1/acc/"},
            "acc.file.evil.test",
            "https://127.0.0.1:1/acc",
        ),
        ({"AZURE_STORAGE_SERVICE_ENDPOINT": f"https://{ZONE}/"}, "", f"https://{ZONE}"),
        ({"AZURE_STORAGE_SERVICE_ENDPOINT": "https://127.0.0.1:1/other"}, "", PUBLIC),
        ({"AZURE_STORAGE_CONNECTION_STRING": FAKE}, "", "http://127.0.0.1:10004/acc"),
    ],
)
def test_the_endpoint_can_be_that_of_another_cloud_or_of_an_emulator(
    environment: dict[str, str], server: str, endpoint: str
) -> None:
    account = choose_account("acc", Options("acc", key="given"), environment, server=server)
    assert (account.endpoint, account.key) == (endpoint, "given")


@pytest.mark.parametrize(
    "text",
    ["c3RyaW5nLXNlY3JldA", "AccountName=acc", "AccountKey=c3RyaW5nLXNlY3JldA", "a;AccountKey=c3RyaW5nLXNlY3JldA"],
)
def test_an_invalid_connection_string_is_rejected_and_not_shown(text: str) -> None:
    with pytest.raises(FilesError, match="`connection_string=`") as raised:
        choose_account(None, Options(connection_string=text), {})
    assert "c3RyaW5nLXNlY3JldA" not in str(raised.value)


def test_secrets_are_not_in_the_text_of_an_account() -> None:
    account = selected_account(Options("acc", key="given-key"), {})
    assert "given-key" not in f"{account} {account!r} {Options(key='given-key')!r}"


@pytest.mark.parametrize(
    ("options", "environment", "words"),
    [
        (Options(key="k"), {}, "the given key names no account; .*`account_name=`"),
        (Options(sas="s"), {}, "the given SAS names no account"),
        (Options(key="k"), {"AZURE_STORAGE_ACCOUNT": "other"}, "the given key names no account"),
        (Options("other", sas="s"), {}, "storage account acc, and the given credentials are for other"),
        (Options("other", key="k"), {}, "for other"),
        (Options(connection_string=STRING.replace("acc", "other")), {}, "for other"),
        (Options(), {"AZURE_STORAGE_SAS_TOKEN": "s"}, "AZURE_STORAGE_SAS_TOKEN is for .* AZURE_STORAGE_ACCOUNT has to"),
        (Options(), {"AZURE_BATCHAI_STORAGE_KEY": "k"}, "AZURE_BATCHAI_STORAGE_KEY is for"),
    ],
)
def test_a_credential_without_an_account_fits_none_that_a_job_names(
    options: Options, environment: dict[str, str], words: str
) -> None:
    with pytest.raises(FilesError, match=words) as raised:
        choose_account("acc", options, environment)
    assert str(raised.value).count(". ") == 0


def test_a_credential_without_an_account_is_for_the_account_that_the_user_names() -> None:
    environment = {"AZURE_STORAGE_SAS_TOKEN": "s"}
    assert choose_account(None, Options("acc"), environment).sas == "s"
    assert choose_account("acc", Options("acc"), environment).sas == "s"
    assert choose_account("acc", Options(sas="g"), {"AZURE_STORAGE_ACCOUNT": "acc"}).sas == "g"


@pytest.mark.parametrize(
    "server",
    [
        "acc.file.attacker.test",
        "acc.file.core.windows.net.attacker.test",
        "acc.file.core.windows.net.evil",
        "other.file.core.windows.net",
        "acc.blob.core.windows.net",
        "acc.evil.file.core.windows.net",
        "accxfile.core.windows.net",
        "acc.zz.file.storage.azure.net",
        "acc.z01.file.storage.azure.net.evil.test",
        "files.corp.example",
        "localhost",
    ],
)
@pytest.mark.parametrize("options", [Options("acc", sas="s"), Options("acc", key="k"), Options()])
def test_a_host_that_a_job_names_gets_no_credential(options: Options, server: str) -> None:
    with pytest.raises(HostNotAllowed, match=f"{server} for storage account acc.* HVJ_STORAGE_HOSTS={server}"):
        choose_account("acc", options, {}, server=server)


@pytest.mark.parametrize(
    ("server", "host"),
    [
        ("acc.file.core.windows.net", "acc.file.core.windows.net"),
        ("ACC.file.core.windows.NET.", "acc.file.core.windows.net"),
        ("acc.file.core.usgovcloudapi.net", "acc.file.core.usgovcloudapi.net"),
        ("acc.privatelink.file.core.chinacloudapi.cn", "acc.privatelink.file.core.chinacloudapi.cn"),
        (ZONE, ZONE),
        ("10.1.2.3", "acc.file.core.windows.net"),
        ("", "acc.file.core.windows.net"),
    ],
)
def test_hosts_of_azure_for_the_account_get_credentials(server: str, host: str) -> None:
    assert choose_account("acc", Options(), {}, server=server).endpoint == f"https://{host}"


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        (Options(hosts=("Files.corp.example",)), {}),
        (Options(), {"HVJ_STORAGE_HOSTS": "other.example, files.corp.example"}),
    ],
)
def test_the_user_can_allow_a_host(options: Options, environment: dict[str, str]) -> None:
    found = choose_account("acc", options, environment, server="files.corp.example")
    assert found.endpoint == "https://files.corp.example"
    with pytest.raises(HostNotAllowed):
        choose_account("acc", options, environment, server="files.corp.example.evil")
