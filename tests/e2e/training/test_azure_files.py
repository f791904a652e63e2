"""Jobs with shares of Azure Files, and with missing shares. All jobs run side by side."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from e2e.namespace import Namespace
from e2e.training.storage import MOUNT_ROOT, SHARE, StorageAccount
from localcluster.settings import Cluster
from support.api_client import ROOT, Object
from support.tutorial import page

TRAIN = ["python", "-m", "horovodjob_trainer", "--dataset", "digits", "--threads", "1", "--epochs", "2"]
AWAY = ("wrong-key", "no-secret", "no-share", "no-server")
SCRIPT = {"path": f"{MOUNT_ROOT}/{SHARE}/cifar/train.sh", "interpreter": "sh"}
# One share three times: read-only, a new directory of it, and the whole share.
MOUNTS = """
cd "$AZ_BATCHAI_JOB_MOUNT_ROOT"
! touch data/denied 2>/dev/null && [ "$(cat data/cifar/train.sh)" = "$(cat myshare/cifar/train.sh)" ] || exit 3
echo made >"new/$HOROVODJOB_POD" && [ "$(cat "myshare/a/b/$HOROVODJOB_POD")" = made ] || exit 4
[ "$(stat -c %u:%a myshare/cifar/train.sh)" = "$(id -u):777" ] || exit 5
"""


@dataclass(frozen=True, slots=True)
class StorageJobs:
    """The namespace, the account with a share, and the accounts without one."""

    namespace: Namespace
    account: StorageAccount
    away: dict[str, StorageAccount]


@pytest.fixture(scope="module")
def storage_jobs(module_namespace: Namespace, local: Cluster) -> Iterator[StorageJobs]:
    """All jobs, applied at once."""
    account = StorageAccount(local, SHARE)
    account.write("cifar/train.sh", "echo trained\n")
    account.directory.chmod(0o777)
    away = {name: StorageAccount(local, *((SHARE,) if name != "no-share" else ())) for name in AWAY}
    away["no-server"].command("stop")
    create_secret_as_documented(module_namespace, account)
    module_namespace.apply(away["wrong-key"].secret("d3Jvbmc="), away["no-share"].secret(), away["no-server"].secret())

    def job(name: str, account: StorageAccount, command: object = None, *more: Object, **spec: object) -> Object:
        given = {"worker": {"replicas": 2}, "runPolicy": {"backoffLimit": 0}} | spec
        return module_namespace.job(name, command, azureFiles=[account.mounted(), *more], **given)  # type: ignore[arg-type]

    logs = {"pathPrefix": f"{MOUNT_ROOT}/{SHARE}/cifar"}
    readonly, new = account.mounted("data", readOnly=True), account.mounted("new", directory="a/b")
    module_namespace.apply(
        job("trains", account, [*TRAIN, "--dir", f"{MOUNT_ROOT}/{SHARE}/cifar"], logs=logs),
        job("mounts", account, MOUNTS, readonly, new),
        job("no-script", account, script={"path": f"{MOUNT_ROOT}/{SHARE}/cifar/trian.sh", "interpreter": "sh"}),
        *(job(name, away[name], "true") for name in AWAY),
    )
    yield StorageJobs(module_namespace, account, away)
    for one in (account, *away.values()):
        one.command("remove")


def create_secret_as_documented(namespace: Namespace, account: StorageAccount) -> None:
    """Types the command of the page."""
    (command,) = page.blocks(ROOT / "docs" / "jobs-reference.md", "sh", "Azure Files")
    typed = command.replace("mystorageaccount", account.name).replace("$KEY", account.key).replace("\\\n", " ")
    namespace.kubectl(*shlex.split(typed)[1:], "-n", namespace.name)


@pytest.fixture(scope="module")
def reported(storage_jobs: StorageJobs) -> dict[str, str]:
    """The message of each job without its share. Then all shares are created at once: the kubelet backs off."""
    messages = {name: _stalled(storage_jobs.namespace, name) for name in AWAY}
    storage_jobs.namespace.apply(storage_jobs.away["wrong-key"].secret(), storage_jobs.away["no-secret"].secret())
    storage_jobs.away["no-share"].directory.mkdir()
    storage_jobs.away["no-server"].command("start")
    return messages


def _stalled(namespace: Namespace, name: str) -> str:
    def stalled() -> bool:
        return bool(namespace.condition(name, "Stalled").get("reason") == "StorageUnavailable")

    namespace.wait(name, "StorageUnavailable", lambda _: stalled())
    return str(namespace.condition(name, "Stalled")["message"])


def test_a_wrong_key_is_reported_with_how_to_find_the_right_one(
    storage_jobs: StorageJobs, reported: dict[str, str]
) -> None:
    assert "mount error(13)" in reported["wrong-key"]
    account = storage_jobs.away["wrong-key"].name
    assert f"az storage account keys list --account-name {account}" in reported["wrong-key"]


def test_a_missing_secret_is_reported_with_how_to_create_it(
    storage_jobs: StorageJobs, reported: dict[str, str]
) -> None:
    account = storage_jobs.away["no-secret"].name
    assert f'secrets "azure-storage-account-{account}-secret" not found' in reported["no-secret"]
    assert f"kubectl create secret generic NAME --namespace {storage_jobs.namespace.name}" in reported["no-secret"]


def test_a_missing_share_is_reported_with_how_to_create_it(storage_jobs: StorageJobs, reported: dict[str, str]) -> None:
    assert "mount error(2)" in reported["no-share"]
    account = storage_jobs.away["no-share"].name
    assert f"az storage share-rm create --storage-account {account}" in reported["no-share"]


def test_a_closed_port_is_reported(reported: dict[str, str]) -> None:
    assert "cannot reach port 445" in reported["no-server"]


@pytest.mark.parametrize("name", AWAY)
def test_a_job_starts_automatically_once_its_share_exists(
    storage_jobs: StorageJobs, reported: dict[str, str], name: str
) -> None:
    assert reported[name]
    status = storage_jobs.namespace.wait_phase(name, "Succeeded")
    assert (status["restarts"], status["attempt"]) == (0, 1), "nothing counts against backoffLimit"


def test_one_share_can_be_mounted_several_times(storage_jobs: StorageJobs) -> None:
    storage_jobs.namespace.wait_phase("mounts", "Succeeded")


def test_a_missing_script_is_reported_with_what_its_directory_contains(storage_jobs: StorageJobs) -> None:
    status = storage_jobs.namespace.wait_phase("no-script", "Failed")
    error = status["errors"][-1]
    assert error["reason"] == "ScriptNotFound"
    assert "trian.sh: /mnt/batchai/mounts/myshare/cifar contains " in error["message"]
    assert "train.sh" in error["message"]


def test_model_checkpoints_and_log_files_are_on_the_share(storage_jobs: StorageJobs) -> None:
    status = storage_jobs.namespace.wait_phase("trains", "Succeeded")
    found = {
        str(path.relative_to(storage_jobs.account.directory)) for path in storage_jobs.account.directory.rglob("*")
    }
    assert "cifar/saved_models/keras_digits_trained_model.h5" in found
    logs = f"cifar/{status['outputPathSegment']}/stdouterr"
    names = {f"{logs}/{name}" for name in ("stdout.txt", "stderr.txt", "execution-trains-worker-1.log")}
    assert names <= found
    assert "Test accuracy: " in (storage_jobs.account.directory / logs / "stdout.txt").read_text()
