"""Jobs with shares of Azure Files, and with missing shares. All jobs run side by side."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from e2e.namespace import RARELY, SLEEPING, Namespace
from e2e.training.storage import MOUNT_ROOT, SHARE, StorageAccount
from localcluster.settings import Cluster
from support.api_client import ROOT, Object
from support.tutorial import page
from support.waiting_ranks import sleeping_library

TRAIN = ["python", "-m", "horovodjob_trainer", "--dataset", "digits", "--threads", "1"]
EPOCHS = 2
TRAIN += ["--epochs", str(EPOCHS)]
# The share has the library.
SLEEPS = SLEEPING | {"value": f"{MOUNT_ROOT}/{SHARE}/sleep_for_yield.so"}
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
    assert sleeping_library(account.directory), "without a C compiler, ranks that wait use all processors"
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
        job("trains", account, [*TRAIN, "--dir", f"{MOUNT_ROOT}/{SHARE}/cifar"], logs=logs, env=[RARELY, SLEEPS]),
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


def _stalled(namespace: Namespace, name: str) -> str:
    def stalled() -> bool:
        return bool(namespace.condition(name, "Stalled").get("reason") == "StorageUnavailable")

    namespace.wait(name, "StorageUnavailable", lambda _: stalled())
    return str(namespace.condition(name, "Stalled")["message"])


def test_a_missing_share_is_reported_with_its_remedy_and_the_job_starts_once_it_exists(
    storage_jobs: StorageJobs,
) -> None:
    namespace, away = storage_jobs.namespace, storage_jobs.away
    accounts = {name: account.name for name, account in away.items()}
    expected = {
        "wrong-key": ("mount error(13)", f"az storage account keys list --account-name {accounts['wrong-key']}"),
        "no-secret": (
            f'secrets "azure-storage-account-{accounts["no-secret"]}-secret" not found',
            f"kubectl create secret generic NAME --namespace {namespace.name}",
        ),
        "no-share": ("mount error(2)", f"az storage share-rm create --storage-account {accounts['no-share']}"),
        "no-server": ("cannot reach port 445",),
    }
    for name, words in expected.items():
        message = _stalled(namespace, name)
        assert [word for word in words if word not in message] == [], message
    # All shares are created at once: the kubelet backs off.
    namespace.apply(away["wrong-key"].secret(), away["no-secret"].secret())
    away["no-share"].directory.mkdir()
    away["no-server"].command("start")
    for name in AWAY:
        status = namespace.wait_phase(name, "Succeeded")
        assert (status["restarts"], status["attempt"]) == (0, 1), "nothing counts against backoffLimit"


def test_one_share_can_be_mounted_several_times(storage_jobs: StorageJobs) -> None:
    storage_jobs.namespace.wait_phase("mounts", "Succeeded")


def test_a_missing_script_is_reported_with_what_its_directory_contains(storage_jobs: StorageJobs) -> None:
    status = storage_jobs.namespace.wait_phase("no-script", "Failed")
    error = status["errors"][-1]
    assert error["reason"] == "ScriptNotFound"
    assert "trian.sh: /mnt/batchai/mounts/myshare/cifar contains " in error["message"]
    assert "train.sh" in error["message"]


def test_a_training_reports_its_progress_and_its_model_and_records_are_on_the_share(
    storage_jobs: StorageJobs,
) -> None:
    namespace, share = storage_jobs.namespace, storage_jobs.account.directory
    status = namespace.wait_phase("trains", "Succeeded")
    training = status["training"]
    assert (training["percent"], training["epoch"], training["epochs"]) == ("100%", EPOCHS, EPOCHS)
    assert "100%" in namespace.kubectl("get", "hvj", "-n", namespace.name, "trains", "--no-headers").split()
    logs = share / "cifar" / status["outputPathSegment"] / "stdouterr"
    (accuracy,) = re.findall(r"Test accuracy: ([\d.]+)", (logs / "stdout.txt").read_text())
    assert training["metrics"]["val_accuracy"] == pytest.approx(float(accuracy), abs=0.001)
    records = [json.loads(line) for line in (logs / "progress.jsonl").read_text().splitlines()]
    assert records[-1]["epoch"] == EPOCHS
    assert list((logs / "tensorboard").iterdir())
    for name in ("stderr.txt", "execution-trains-worker-1.log"):
        assert (logs / name).exists()
    for suffix in (".h5", ".keras"):
        assert (share / f"cifar/saved_models/keras_digits_trained_model{suffix}").exists()
