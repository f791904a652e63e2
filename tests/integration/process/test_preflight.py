"""The operator with HOROVODJOB_OPERATOR_PREFLIGHT, with workload identity and a fake of Azure Files."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.api_client import WAIT_SECONDS, Api
from support.azure_fakes.entra.server import TENANT, Entra, federated_token
from support.azure_fakes.files.accounts import Account, DataRole
from support.azure_fakes.files.server import FilesService
from support.job_driver import Job, submit
from support.operator_process import Operator

CLIENT = "11111111-0000-4000-8000-000000000002"
ISSUER = "https://eastus.oic.prod-aks.azure.com/tenant/cluster/"
SUBJECT = "system:serviceaccount:horovodjob-system:horovodjob-operator"
SHARE = {"name": "myshare", "account": "mystorageaccount", "share": "myshare"}
SCRIPT = {"path": "$(AZ_BATCHAI_JOB_MOUNT_ROOT)/myshare/cifar/train.py"}


@pytest.fixture
def entra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Entra]:
    """A tenant with a federated credential for the operator's service account."""
    token = tmp_path / "token"
    token.write_text(federated_token(ISSUER, SUBJECT))
    directory = tmp_path / "entra"
    directory.mkdir()
    with Entra(directory) as entra:
        entra.register(CLIENT, identity=(ISSUER, SUBJECT))
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", entra.url)
        monkeypatch.setenv("AZURE_TENANT_ID", TENANT)
        monkeypatch.setenv("AZURE_CLIENT_ID", CLIENT)
        monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(token))
        yield entra


@pytest.fixture
def account(entra: Entra, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    """A storage account without shares, on which the operator has the role of a reader."""
    role = {str(uuid.uuid5(uuid.NAMESPACE_URL, CLIENT)): DataRole.READER}
    directory = tmp_path / "account"
    directory.mkdir()
    account = Account("mystorageaccount", directory, roles=role)
    with FilesService([account], tls=entra.certificate.parent, claims=entra.claims) as service:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(entra.certificate))
        monkeypatch.setenv("AZURE_STORAGE_SERVICE_ENDPOINT", service.url(account.name))
        yield account


@pytest.fixture
def preflight_operator(
    operator_process: Operator, operator_access: Path, account: Account, namespace: str
) -> Iterator[Operator]:
    """An operator that checks shares before it creates pods."""
    operator_process.kill()
    accounts = json.dumps({namespace: [account.name], "team-b": ["accountb"]})
    operator = Operator(operator_access, operator_access.with_name("preflight"), preflight=accounts)
    operator.start()
    yield operator
    operator.kill()


FOREIGN = (
    {"account": "accountb"},  # of another namespace
    {"server": "mystorageaccount.file.attacker.test"},
    {"server": "mystorageaccount.file.core.chinacloudapi.cn"},
)


def test_a_share_without_the_script_of_a_job_is_reported_before_pods_are_created(
    preflight_operator: Operator, entra: Entra, account: Account, api: Api, namespace: str
) -> None:
    def submit_job(name: str, share: dict[str, str] = SHARE) -> Job:
        return submit(api, namespace, name, azureFiles=[share], script=SCRIPT, command=None)

    # A job decides neither which account the operator reads nor where its token goes.
    for number, fields in enumerate(FOREIGN):
        submit_job(f"foreign-{number}", SHARE | fields).advance_to("Running")
    assert len(entra.requests) == 0

    job = submit_job("train")
    message = job.wait_for_condition("Stalled", reason="StorageUnavailable")
    assert "share myshare of storage account mystorageaccount does not exist" in message
    assert job.pods() == {}
    directory = account.directory / "myshare" / "cifar"
    directory.mkdir(parents=True)
    (directory / "trian.py").touch()
    message = job.wait_for_condition("Stalled", reason="ScriptNotFound")
    assert message == "there is no file cifar/train.py on share myshare of storage account mystorageaccount"
    assert job.pods() == {}
    (directory / "train.py").touch()
    job.advance_to("Succeeded")

    account.roles.clear()
    submit_job("left-to-the-kubelet").advance_to("Running")


def test_without_workload_identity_the_operator_reports_what_it_needs(operator_access: Path) -> None:
    accounts = '{"team-a": ["mystorageaccount"]}'
    environment = os.environ | {"KUBECONFIG": str(operator_access), "HOROVODJOB_OPERATOR_PREFLIGHT": accounts}
    command = [sys.executable, "-m", "horovodjob_operator"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    assert done.returncode == 1
    assert "HOROVODJOB_OPERATOR_PREFLIGHT needs workload identity" in done.stderr
