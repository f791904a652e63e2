"""Shares of Azure Files in pods of the local cluster: a real kubelet, a real SMB server, the driver's own words."""

import json
import os
import secrets
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from local_cluster.scratch import CLUSTER, command, eventually, kill, pod, runs
from local_cluster.traces import traces
from localcluster.azure_files.accounts import Account, Storage
from localcluster.azure_files.csi_driver import DRIVER
from localcluster.control_plane.client import Client
from localcluster.machine.cgroups import pod_processes
from localcluster.processes import Processes
from localcluster.settings import API_PORT, COMPONENTS

pytestmark = pytest.mark.e2e

CORE = "/api/v1/namespaces/default"
USER = 1000
OPTIONS = f"uid={USER},gid={USER},dir_mode=0750,file_mode=0640,actimeo=1,mfsymlinks,nobrl,nosharesock,cache=strict"
IDENTITY = "5d1f1d5e-5a43-44a5-9d6c-3c1b7d1f0a11"

# A warning of each shell here: its directory is in the container, and the shell is not.
OUTSIDE = "sh: 0: getcwd() failed: No such file or directory\n"


@pytest.fixture(scope="module")
def client(_machine: None) -> Client:
    """The API server of a cluster that is up."""
    command("up")
    return Client(CLUSTER.node_address, API_PORT, CLUSTER.pki)


@pytest.fixture(scope="module")
def storage(client: Client) -> Iterator[Storage]:
    """The storage accounts; no mount is left after the pods are deleted."""
    storage = Storage(CLUSTER)
    yield storage
    if CLUSTER.run.exists():
        assert eventually(lambda: not mounts()), mounts()
        for account in storage.accounts():
            storage.remove_account(account.name)


@pytest.fixture
def account(client: Client, storage: Storage) -> Iterator[Account]:
    """A storage account of the test with the share `data`, and a secret of the account's name."""
    made = storage.create_account(f"account{secrets.token_hex(4)}")
    storage.create_share(made.name, "data")
    keep_key(client, made.name, made.key)
    yield made
    if CLUSTER.run.exists():
        client.delete(f"{CORE}/pods?gracePeriodSeconds=0")


def keep_key(client: Client, account: str, key: str) -> None:
    """Let the secret `account` have the account's key."""
    data = {"azurestorageaccountname": account, "azurestorageaccountkey": key}
    wanted = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": account}, "stringData": data}
    client.apply(f"{CORE}/secrets/{account}", wanted)


def mounts() -> list[str]:
    """Mounts of shares in the cluster, and the processes that serve them."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    mounted = [line for line in lines if "fuse.cifs" in line and str(CLUSTER.state) in line]
    return mounted + [str(process) for process in mounting_processes()]


def mounting_processes() -> list[int]:
    """Those that serve the mounts of the cluster."""
    return [pid for pid, name in Processes(CLUSTER).all().items() if name == "azure-files-mount"]


def is_in(process: int, container: str) -> bool:
    try:
        return container in Path(f"/proc/{process}/cgroup").read_text()
    except OSError:  # pods of the test before come to their end
        return False


def inline(account: str, *, read_only: bool = False, **attributes: str) -> dict[str, Any]:
    """An inline volume of the share `data`."""
    default = {"shareName": "data", "secretName": account, "mountOptions": OPTIONS}
    return {"csi": {"driver": DRIVER, "readOnly": read_only, "volumeAttributes": default | attributes}}


class Pod:
    """A pod with volumes at /0, /1 ..."""

    def __init__(self, client: Client, *volumes: dict[str, Any]) -> None:
        self.client, self.path = client, f"{CORE}/pods/pod-{secrets.token_hex(4)}"
        named = [{"name": f"v{number}"} | volume for number, volume in enumerate(volumes)]
        places = [{"name": volume["name"], "mountPath": f"/{number}"} for number, volume in enumerate(named)]
        wanted = json.loads(pod(self.path.rpartition("/")[2], volumeMounts=places))
        wanted["spec"]["volumes"] = named
        client.apply(self.path, wanted)

    def started(self) -> "Pod":
        assert eventually(lambda: self._get()["status"].get("phase") == "Running"), self.events()
        container = self._get()["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
        self.root = next(Path(f"/proc/{pid}/root") for pid in pod_processes(CLUSTER.interface) if is_in(pid, container))
        return self

    def failed_with(self, *words: str) -> "Pod":
        """Waits for an event of the kubelet with these words about the pod's volumes."""
        assert eventually(lambda: all(word in self.events() for word in words)), (words, self.events())
        return self

    def events(self) -> str:
        found = self.client.get(f"{CORE}/events?fieldSelector=involvedObject.name={self.path.rpartition('/')[2]}")
        return "\n".join(item["message"] for item in (found or {"items": []})["items"])

    def run(self, script: str, *, volume: int = 0, user: int = USER) -> str:
        """The output of a shell that runs in the volume as the container sees it."""
        done = subprocess.run(
            ["sh", "-c", script],
            cwd=self.root / str(volume),
            user=user,
            group=user,
            extra_groups=(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return (done.stdout + done.stderr.replace(OUTSIDE, "")).strip()

    def _get(self) -> dict[str, Any]:
        found = self.client.get(self.path)
        assert found is not None
        return found


def test_a_file_grows_for_all_pods_while_one_appends_to_it(client: Client, storage: Storage, account: Account) -> None:
    writer, reader = Pod(client, inline(account.name)), Pod(client, inline(account.name))
    writer.started().run("echo one >> log")
    assert reader.started().run("cat log") == "one"
    with (writer.root / "0" / "log").open("a") as log, (reader.root / "0" / "log").open() as seen:
        print("two", file=log, flush=True)
        assert seen.read() == "one\ntwo\n"
    reader.run("echo three >> log")
    assert (storage.share(account.name, "data") / "log").read_text() == "one\ntwo\nthree\n"


def test_owner_and_modes_are_those_of_the_mount(client: Client, account: Account) -> None:
    one = Pod(client, inline(account.name)).started()
    assert one.run("mkdir d; touch f; chmod 600 f; stat --format='%u %g %a' d f") == "1000 1000 750\n1000 1000 640"
    assert "Permission denied" in one.run("ls", user=USER + 1)
    assert "Operation not permitted" in one.run("chown 0 f")


def test_there_are_no_links_and_a_file_that_is_open_cannot_be_replaced(client: Client, account: Account) -> None:
    one, other = (Pod(client, inline(account.name)) for _ in range(2))
    one.started().run("echo old > f; echo new > g; echo newer > h")
    assert "Operation not supported" in one.run("ln -s f s")
    assert "not supported" in one.run("ln f l")
    assert one.run("mv g f; cat f") == "new"
    for reader in (one, other.started()):
        with (reader.root / "0" / "f").open() as reading:
            assert reading.read() == "new\n"
            assert "mv: cannot move" in one.run("mv h f")
    assert one.run("mv h f; cat f") == "newer"


def test_a_volume_that_is_read_only_can_only_be_read(client: Client, storage: Storage, account: Account) -> None:
    (storage.share(account.name, "data") / "f").write_text("content")
    one = Pod(
        client, inline(account.name, read_only=True), inline(account.name, mountOptions=f"{OPTIONS},ro")
    ).started()
    for volume in (0, 1):
        assert one.run("cat f", volume=volume) == "content"
        assert "Read-only file system" in one.run("touch g", volume=volume)


def test_commands_that_wait_for_each_other_print_nothing_but_the_key(storage: Storage) -> None:
    names = [f"parallel{secrets.token_hex(4)}" for _ in range(3)]
    with ThreadPoolExecutor() as pool:
        printed = list(pool.map(lambda name: command("storage", "create", name), names))
    assert printed == [f"{storage.account(name).key}\n" for name in names]
    for name in names:
        storage.remove_account(name)


def test_a_pod_starts_once_the_secret_is_there(client: Client, account: Account) -> None:
    name = f"{account.name}-late"
    one = Pod(client, inline(account.name, secretName=name))
    one.failed_with("InvalidArgument", "GetAccountInfo(", f'could not get secret({name}): secrets "{name}" not found')
    keep_key(client, name, account.key)
    client.merge(f"{CORE}/secrets/{name}", {"stringData": {"azurestorageaccountname": account.name}})
    one.started()


def test_a_pod_starts_once_the_key_is_right(client: Client, storage: Storage, account: Account) -> None:
    keep_key(client, account.name, "d3Jvbmc=")
    one = Pod(client, inline(account.name))
    one.failed_with(f"//{account.name}.file.core.windows.net/data", "<masked>", "mount error(13): Permission denied")
    assert account.key not in one.events()
    keep_key(client, account.name, account.key)
    one.started()


def test_a_key_opens_nothing_after_it_was_rotated(client: Client, storage: Storage, account: Account) -> None:
    before = Pod(client, inline(account.name)).started()
    storage.rotate_key(account.name)
    Pod(client, inline(account.name)).failed_with("mount error(13): Permission denied")
    assert before.run("echo still > f; cat f") == "still"


def test_a_pod_starts_once_the_share_is_there(client: Client, storage: Storage, account: Account) -> None:
    one = Pod(client, inline(account.name, shareName="later"))
    one.failed_with("Internal", "mount error(2): No such file or directory")
    storage.create_share(account.name, "later")
    one.started()


def test_an_account_that_does_not_exist_has_no_address(client: Client, account: Account) -> None:
    keep_key(client, "nosuchaccount", account.key)
    one = Pod(client, inline("nosuchaccount"))
    one.failed_with("mount error: could not resolve address for nosuchaccount.file.core.windows.net: Unknown error")


def test_a_pod_starts_once_the_server_answers(client: Client, storage: Storage, account: Account) -> None:
    storage.stop(account.name)
    one = Pod(client, inline(account.name)).failed_with("mount error(111): could not connect to ")
    storage.block(account.name)
    one.failed_with("mount error(115): Operation now in progress")
    storage.start(account.name)
    storage.unblock(account.name)
    one.started()


def test_a_server_that_vanishes_is_an_error_and_no_endless_wait(
    client: Client, storage: Storage, account: Account
) -> None:
    one = Pod(client, inline(account.name)).started()
    with (one.root / "0" / "log").open("a") as log:
        print("before", file=log, flush=True)
        storage.stop(account.name)
        with pytest.raises(OSError, match="Host is down"):
            os.write(log.fileno(), b"lost\n")
        with pytest.raises(OSError, match="Host is down"):
            os.listdir(one.root / "0")
        storage.start(account.name)
        assert eventually(lambda: os.path.exists(one.root / "0" / "log"))
        print("after", file=log, flush=True)
    assert one.run("cat log") == "before\nafter"


def test_a_directory_of_the_share_is_made_where_that_is_asked_for(
    client: Client, storage: Storage, account: Account
) -> None:
    made = Pod(client, inline(account.name, folderName="a/b", createFolderIfNotExist="true"))
    absent = Pod(client, inline(account.name, folderName="c"))
    made.started().run("touch f")
    assert (storage.share(account.name, "data") / "a" / "b" / "f").exists()
    absent.failed_with("data/c on ", "mount error(2): No such file or directory")


def test_a_pod_can_have_a_share_twice_and_another_one(client: Client, storage: Storage, account: Account) -> None:
    storage.create_share(account.name, "more")
    volumes = inline(account.name), inline(account.name), inline(account.name, shareName="more")
    one = Pod(client, *volumes).started()
    one.run("echo x > f")
    assert [one.run("cat f", volume=volume) for volume in (1, 2)] == ["x", "cat: f: No such file or directory"]


def test_a_persistent_volume_has_the_key_of_its_own_secret(client: Client, storage: Storage, account: Account) -> None:
    name = account.name
    (storage.share(name, "data") / "d").mkdir()
    csi = {
        "driver": DRIVER,
        "volumeHandle": f"group#{name}#data",
        "volumeAttributes": {"shareName": "data", "folderName": "d"},
        "nodeStageSecretRef": {"name": name, "namespace": "default"},
    }
    common = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = common | {"csi": csi, "mountOptions": OPTIONS.split(","), "persistentVolumeReclaimPolicy": "Retain"}
    client.apply(f"/api/v1/persistentvolumes/{name}", manifest("PersistentVolume", name, volume))
    claim = {"volumeName": name, "resources": {"requests": {"storage": "1Gi"}}} | common
    del claim["capacity"]
    client.apply(f"{CORE}/persistentvolumeclaims/{name}", manifest("PersistentVolumeClaim", name, claim))
    used = {"persistentVolumeClaim": {"claimName": name}}
    one, other = (
        Pod(client, used),
        Pod(client, {"persistentVolumeClaim": used["persistentVolumeClaim"] | {"readOnly": True}}),
    )
    one.started().run("echo x > f")
    assert other.started().run("cat f; touch g").startswith("x\ntouch: cannot touch 'g': Read-only")
    assert (storage.share(name, "data") / "d" / "f").exists()


def manifest(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def test_a_pod_mounts_without_a_key_as_an_identity_that_may(client: Client, storage: Storage, account: Account) -> None:
    keyless: dict[str, Any] = {"storageAccount": account.name, "mountWithWorkloadIdentityToken": "true"}
    one = Pod(client, inline(account.name, secretName="", clientID=IDENTITY, **keyless))
    one.failed_with("mount error(13): Permission denied")
    storage.allow(account.name, IDENTITY)
    one.started()


def test_what_the_driver_refuses_in_a_pod_is_refused_in_its_words(client: Client, account: Account) -> None:
    Pod(client, inline(account.name, protocol="nfs")).failed_with("NFS protocol is not supported for ephemeral volumes")
    Pod(client, inline(account.name, mountOptions="uid=1000,typo=1")).failed_with("mount error(22): Invalid argument")
    Pod(client, inline(account.name, secretName="")).failed_with("failed to get account name from csi-")


def test_mounts_outlive_the_kubelet_and_the_driver(client: Client, account: Account) -> None:
    one = Pod(client, inline(account.name)).started()
    kill("kubelet", "azure-files")
    assert one.run("echo x > f; cat f") == "x"
    command("up")
    other = Pod(client, inline(account.name)).started()
    assert other.run("cat f") == one.run("cat f") == "x"


def test_down_leaves_no_mount_and_no_server_when_everything_was_killed(client: Client, account: Account) -> None:
    Pod(client, inline(account.name)).started()
    mounting = mounting_processes()
    kill(*COMPONENTS)
    for process in mounting:
        os.kill(process, 9)
    assert eventually(lambda: not any(runs(process) for process in mounting))
    command("down")
    assert {kind: found for kind, found in traces().items() if found} == {}
    assert not CLUSTER.azure_files.exists()
