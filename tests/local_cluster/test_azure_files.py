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


def test_a_share_behaves_in_two_pods_as_the_options_of_its_mount_say(
    client: Client, storage: Storage, account: Account
) -> None:
    writer, reader = Pod(client, inline(account.name)), Pod(client, inline(account.name))
    writer.started().run("echo one >> log")
    assert reader.started().run("cat log") == "one"
    with (writer.root / "0" / "log").open("a") as log, (reader.root / "0" / "log").open() as seen:
        print("two", file=log, flush=True)
        assert seen.read() == "one\ntwo\n"
    reader.run("echo three >> log")
    assert (storage.share(account.name, "data") / "log").read_text() == "one\ntwo\nthree\n"
    assert writer.run("mkdir d; touch f; chmod 600 f; stat --format='%u %g %a' d f") == "1000 1000 750\n1000 1000 640"
    assert "Permission denied" in writer.run("ls", user=USER + 1)
    assert "Operation not permitted" in writer.run("chown 0 f")
    writer.run("echo old > f; echo new > g; echo newer > h")
    assert "Operation not supported" in writer.run("ln -s f s")
    assert "not supported" in writer.run("ln f l")
    assert writer.run("mv g f; cat f") == "new"
    for one in (writer, reader):
        with (one.root / "0" / "f").open() as reading:
            assert reading.read() == "new\n"
            assert "mv: cannot move" in writer.run("mv h f"), "a file that is open cannot be replaced"
    assert writer.run("mv h f; cat f") == "newer"


def test_a_pod_mounts_shares_and_directories_of_them_read_only_and_several_times(
    client: Client, storage: Storage, account: Account
) -> None:
    name = account.name
    (storage.share(name, "data") / "f").write_text("content")
    storage.create_share(name, "more")
    one = Pod(
        client,
        inline(name, read_only=True),
        inline(name, mountOptions=f"{OPTIONS},ro"),
        inline(name),
        inline(name, shareName="more"),
        inline(name, folderName="a/b", createFolderIfNotExist="true"),
    )
    absent = Pod(client, inline(name, folderName="c"))
    one.started()
    for volume in (0, 1):
        assert one.run("cat f", volume=volume) == "content"
        assert "Read-only file system" in one.run("touch g", volume=volume)
    one.run("echo x > f", volume=2)
    assert [one.run("cat f", volume=volume) for volume in (0, 3)] == ["x", "cat: f: No such file or directory"]
    one.run("touch f", volume=4)
    assert (storage.share(name, "data") / "a" / "b" / "f").exists()
    absent.failed_with("data/c on ", "mount error(2): No such file or directory")


def test_commands_that_wait_for_each_other_print_nothing_but_the_key(storage: Storage) -> None:
    names = [f"parallel{secrets.token_hex(4)}" for _ in range(3)]
    with ThreadPoolExecutor() as pool:
        printed = list(pool.map(lambda name: command("storage", "create", name), names))
    assert printed == [f"{storage.account(name).key}\n" for name in names]


def test_a_key_opens_nothing_after_it_was_rotated(client: Client, storage: Storage, account: Account) -> None:
    before = Pod(client, inline(account.name)).started()
    storage.rotate_key(account.name)
    Pod(client, inline(account.name)).failed_with("mount error(13): Permission denied")
    assert before.run("echo still > f; cat f") == "still"


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
    keep_key(client, "nosuchaccount", account.key)
    no_address = "mount error: could not resolve address for nosuchaccount.file.core.windows.net: Unknown error"
    refused = {
        no_address: inline("nosuchaccount"),
        "NFS protocol is not supported for ephemeral volumes": inline(account.name, protocol="nfs"),
        "mount error(22): Invalid argument": inline(account.name, mountOptions="uid=1000,typo=1"),
        "failed to get account name from csi-": inline(account.name, secretName=""),
    }
    pods = {words: Pod(client, volume) for words, volume in refused.items()}
    for words, one in pods.items():
        one.failed_with(words)


def test_mounts_outlive_the_kubelet_and_the_driver_and_down_leaves_none_when_everything_was_killed(
    client: Client, account: Account
) -> None:
    one = Pod(client, inline(account.name)).started()
    kill("kubelet", "azure-files")
    assert one.run("echo x > f; cat f") == "x"
    command("up")
    other = Pod(client, inline(account.name)).started()
    assert other.run("cat f") == one.run("cat f") == "x"
    mounting = mounting_processes()
    kill(*COMPONENTS)
    for process in mounting:
        os.kill(process, 9)
    assert eventually(lambda: not any(runs(process) for process in mounting))
    command("down")
    assert {kind: found for kind, found in traces().items() if found} == {}
    assert not CLUSTER.azure_files.exists()
