"""A job with log files on a share of Azure Files: fixtures for tests that read them."""

import base64
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.cluster_state import ClusterState
from support.api_client import Api, Object
from support.azure_fakes.files.accounts import Account
from support.azure_fakes.files.server import FilesService

ACCOUNT = "mystorageaccount"
ROOT = "$(AZ_BATCHAI_JOB_MOUNT_ROOT)"
SHARE = {"name": "myshare", "account": ACCOUNT, "share": "myshare"}
LOGS: Object = {"azureFiles": [SHARE], "logs": {"pathPrefix": f"{ROOT}/myshare/cifar"}}
HOSTILE_HOST = f"{ACCOUNT}.file.attacker.test"
SEGMENT = "batchaidev/experiments/cifar/jobs/train/1234"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The names of hosts that this process looks up; that of the attacker does not exist."""
    names, lookup = [], socket.getaddrinfo

    def recorded(name: Any, *arguments: Any, **options: Any) -> Any:
        names.append(name)
        if name == HOSTILE_HOST:
            raise socket.gaierror(socket.EAI_NONAME, "it does not exist")
        return lookup(name, *arguments, **options)

    for variable in ("AZURE_STORAGE_KEY", "AZURE_BATCHAI_STORAGE_KEY", "AZURE_STORAGE_SERVICE_ENDPOINT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", recorded)
    return names


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FilesService]:
    """The account with the share `myshare`; the environment has its endpoint and no key."""
    (tmp_path / "account" / "myshare").mkdir(parents=True)
    for name in ("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_KEY", "AZURE_BATCHAI_STORAGE_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    with FilesService([Account(ACCOUNT, tmp_path / "account")]) as running:
        monkeypatch.setenv("AZURE_STORAGE_SERVICE_ENDPOINT", running.url(ACCOUNT))
        yield running


@pytest.fixture
def connected_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FilesService]:
    """The account with the share `myshare`; the environment has a connection string for it."""
    (tmp_path / "account" / "myshare").mkdir(parents=True)
    with FilesService([Account(ACCOUNT, tmp_path / "account")]) as running:
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", running.connection_string(ACCOUNT))
        yield running


@pytest.fixture
def key(service: FilesService, api: Api, workspace: str) -> str:
    """The account's key, in the Secret from which the job mounts the share."""
    values = {"azurestorageaccountname": ACCOUNT, "azurestorageaccountkey": service.accounts[ACCOUNT].key}
    data = {name: base64.b64encode(value.encode()).decode() for name, value in values.items()}
    metadata = {"name": f"azure-storage-account-{ACCOUNT}-secret"}
    api.create(f"/api/v1/namespaces/{workspace}/secrets", {"metadata": metadata, "data": data})
    return values["azurestorageaccountkey"]


@pytest.fixture
def logs(service: FilesService, cluster: ClusterState) -> Path:
    """Directory of the log files of a running job."""
    cluster.create(**LOGS)
    cluster.run(outputPathSegment=SEGMENT)
    directory = service.accounts[ACCOUNT].directory / "myshare" / "cifar" / SEGMENT / "stdouterr"
    directory.mkdir(parents=True)
    return directory
