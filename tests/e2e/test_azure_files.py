"""Jobs on shares of Azure Files, and shares that are not there. All jobs run side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from cluster.settings import Cluster
from e2e.access import Object
from e2e.space import Space
from e2e.storage import MOUNT_ROOT, SHARE, StorageAccount

TRAIN = ["python", "-m", "horovodjob_trainer", "--dataset", "digits", "--threads", "1", "--epochs", "2"]
AWAY = ("wrong-key", "no-secret", "no-share", "no-server")
SCRIPT = {"path": f"{MOUNT_ROOT}/{SHARE}/cifar/train.sh", "interpreter": "sh"}
# One share three times: read only, a directory of it that does not exist yet, and the whole.
MOUNTS = """
cd "$AZ_BATCHAI_JOB_MOUNT_ROOT"
! touch data/denied 2>/dev/null && [ "$(cat data/cifar/train.sh)" = "$(cat myshare/cifar/train.sh)" ] || exit 3
echo made >new/file && [ "$(cat myshare/a/b/file)" = made ] || exit 4
[ "$(stat -c %u:%a myshare/cifar/train.sh)" = "$(id -u):777" ] || exit 5
"""


@dataclass(frozen=True, slots=True)
class World:
    """The namespace, the account whose share is there, and those whose share is not."""

    space: Space
    account: StorageAccount
    away: dict[str, StorageAccount]


@pytest.fixture(scope="module")
def world(module_space: Space, local: Cluster) -> Iterator[World]:
    """All jobs, applied at once."""
    account = StorageAccount(local, SHARE)
    account.write("cifar/train.sh", "echo trained\n")
    account.directory.chmod(0o777)
    away = {name: StorageAccount(local, *((SHARE,) if name != "no-share" else ())) for name in AWAY}
    away["no-server"].command("stop")
    module_space.apply(
        account.secret(), away["wrong-key"].secret("d3Jvbmc="), away["no-share"].secret(), away["no-server"].secret()
    )

    def job(name: str, account: StorageAccount, command: object = None, *more: Object, **spec: object) -> Object:
        given = {"worker": {"replicas": 2}, "runPolicy": {"backoffLimit": 0}} | spec
        return module_space.job(name, command, azureFiles=[account.mounted(), *more], **given)  # type: ignore[arg-type]

    logs = {"pathPrefix": f"{MOUNT_ROOT}/{SHARE}/cifar"}
    readonly, new = account.mounted("data", readOnly=True), account.mounted("new", directory="a/b")
    module_space.apply(
        job("trains", account, [*TRAIN, "--dir", f"{MOUNT_ROOT}/{SHARE}/cifar"], logs=logs),
        job("mounts", account, MOUNTS, readonly, new),
        job("no-script", account, script={"path": f"{MOUNT_ROOT}/{SHARE}/cifar/trian.sh", "interpreter": "sh"}),
        *(job(name, away[name], "true") for name in AWAY),
    )
    yield World(module_space, account, away)
    for one in (account, *away.values()):
        one.command("remove")


def _stalled(world: World, name: str) -> str:
    space = world.space

    def reason() -> str:
        return str(space.condition(name, "Stalled").get("reason", ""))

    space.wait(name, "StorageUnavailable", lambda _: reason() == "StorageUnavailable")
    return str(space.condition(name, "Stalled")["message"])


def _goes_on(world: World, name: str) -> None:
    status = world.space.wait_phase(name, "Succeeded")
    assert (status["restarts"], status["attempt"]) == (0, 1)


def test_a_wrong_key_is_reported_and_the_job_starts_when_the_secret_is_right(world: World) -> None:
    account = world.away["wrong-key"]
    message = _stalled(world, "wrong-key")
    assert "mount error(13)" in message
    assert f"az storage account keys list --account-name {account.name}" in message
    world.space.apply(account.secret())
    _goes_on(world, "wrong-key")


def test_a_missing_secret_is_reported_and_the_job_starts_when_it_is_there(world: World) -> None:
    account = world.away["no-secret"]
    message = _stalled(world, "no-secret")
    assert f'secrets "azure-storage-account-{account.name}-secret" not found' in message
    assert f"kubectl create secret generic NAME --namespace {world.space.name}" in message
    world.space.apply(account.secret())
    _goes_on(world, "no-secret")


def test_a_missing_share_is_reported_and_the_job_starts_when_it_is_there(world: World) -> None:
    account = world.away["no-share"]
    message = _stalled(world, "no-share")
    assert "mount error(2)" in message
    assert f"az storage share-rm create --storage-account {account.name}" in message
    account.directory.mkdir()
    _goes_on(world, "no-share")


def test_a_closed_port_is_reported_and_the_job_starts_when_it_is_open(world: World) -> None:
    assert "cannot reach port 445" in _stalled(world, "no-server")
    world.away["no-server"].command("start")
    _goes_on(world, "no-server")


def test_one_share_can_be_mounted_several_times(world: World) -> None:
    world.space.wait_phase("mounts", "Succeeded")


def test_a_missing_script_is_reported_with_what_its_directory_contains(world: World) -> None:
    status = world.space.wait_phase("no-script", "Failed")
    error = status["errors"][-1]
    assert error["reason"] == "ScriptNotFound"
    assert "trian.sh: /mnt/batchai/mounts/myshare/cifar contains " in error["message"]
    assert "train.sh" in error["message"]


def test_model_checkpoints_and_log_files_are_on_the_share(world: World) -> None:
    status = world.space.wait_phase("trains", "Succeeded")
    found = {str(path.relative_to(world.account.directory)) for path in world.account.directory.rglob("*")}
    assert "cifar/saved_models/keras_cifar10_trained_model.h5" in found
    logs = f"cifar/{status['outputPathSegment']}/stdouterr"
    names = {f"{logs}/{name}" for name in ("stdout.txt", "stderr.txt", "execution-trains-worker-1.log")}
    assert names <= found
    assert "Test accuracy: " in (world.account.directory / logs / "stdout.txt").read_text()
