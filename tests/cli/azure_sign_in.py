"""A sign-in at Azure: a workload identity of the fakes, a storage account and the list of its keys."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.azure_fakes.arm.server import SUBSCRIPTION, ResourceManager
from support.azure_fakes.arm.storage import StorageAccount
from support.azure_fakes.entra.server import TENANT, Entra, federated_token
from support.azure_fakes.files.accounts import Account, DataRole
from support.azure_fakes.files.server import FilesService

ACCOUNT, GROUP, CLIENT = "mystorageaccount", "batchai.horovod", "11111111-0000-4000-8000-00000000000f"
ISSUER, STORAGE = "https://issuer", "https://storage.azure.com"


@dataclass
class AzureSignIn:
    """The services that the sign-in is for."""

    account: Account
    arm: ResourceManager
    entra: Entra

    def allow_files(self) -> None:
        """Assign the role for the files of the account."""
        principal = self.entra.claims(self.entra.token(CLIENT, STORAGE), STORAGE)["oid"]
        self.account.roles[principal] = DataRole.CONTRIBUTOR


@contextmanager
def azure_sign_in(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AzureSignIn]:
    """The environment of a pod with workload identity, and the account among others of two subscriptions."""
    account = Account(ACCOUNT, directory / "account")
    (directory / "token").write_text(federated_token(ISSUER, "hvj"))
    with (
        Entra(directory) as entra,
        FilesService([account], tls=directory, claims=entra.claims) as service,
        ResourceManager(directory, entra) as arm,
    ):
        entra.register(CLIENT, identity=(ISSUER, "hvj"))
        arm.accounts += [StorageAccount("another", "other", f"other{number}", "a2V5") for number in range(5)]
        arm.accounts += [StorageAccount(SUBSCRIPTION, "other", "other6", "a2V5")]
        arm.accounts += [StorageAccount(SUBSCRIPTION, GROUP, ACCOUNT, account.key)]
        for name, value in {
            "AZURE_TOKEN_CREDENTIALS": "WorkloadIdentityCredential",
            "AZURE_TENANT_ID": TENANT,
            "AZURE_CLIENT_ID": CLIENT,
            "AZURE_FEDERATED_TOKEN_FILE": str(directory / "token"),
            "AZURE_AUTHORITY_HOST": entra.url,
            "AZURE_RESOURCE_MANAGER_ENDPOINT": arm.url,
            "REQUESTS_CA_BUNDLE": str(entra.certificate),
            "AZURE_STORAGE_SERVICE_ENDPOINT": service.url(ACCOUNT),
        }.items():
            monkeypatch.setenv(name, value)
        yield AzureSignIn(account, arm, entra)
