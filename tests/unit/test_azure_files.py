"""Shares of Azure Files in the pods of a job, and the message of a failed mount."""

from typing import Any

import pytest

from horovodjob_operator.domain.resources.launcher import launcher_pod
from horovodjob_operator.domain.resources.parts import azure_files
from horovodjob_operator.domain.resources.worker import worker_pod
from unit.domain.fake_cluster import training_job

SHARE = {"name": "myshare", "account": "mystorageaccount", "share": "myshare"}
Pod = dict[str, Any]


def pods(*shares: dict[str, Any], **spec: Any) -> tuple[Pod, Pod]:
    job = training_job(azureFiles=list(shares), **spec)
    return launcher_pod(job, 0, "", ""), worker_pod(job, 0, 0, "")


def shares_of(pod: Pod) -> list[Pod]:
    return [volume for volume in pod["spec"]["volumes"] if volume["name"].startswith("horovodjob-share-")]


def mounts_of(pod: Pod) -> list[Pod]:
    (container,) = pod["spec"]["containers"]
    return [mount for mount in container["volumeMounts"] if mount["name"].startswith("horovodjob-share-")]


def options(pod: Pod) -> set[str]:
    return set(shares_of(pod)[0]["csi"]["volumeAttributes"]["mountOptions"].split(","))


def test_a_share_is_mounted_in_launcher_and_workers_with_the_accounts_secret() -> None:
    for pod in pods(SHARE):
        (volume,) = shares_of(pod)
        assert volume["csi"]["driver"] == "file.csi.azure.com"
        assert volume["csi"]["volumeAttributes"]["shareName"] == "myshare"
        assert volume["csi"]["volumeAttributes"]["secretName"] == "azure-storage-account-mystorageaccount-secret"
        assert mounts_of(pod) == [{"name": volume["name"], "mountPath": "/mnt/batchai/mounts/myshare"}]
        wanted = {"dir_mode=0777", "file_mode=0777", "mfsymlinks", "nobrl", "nosharesock", "cache=strict", "actimeo=30"}
        assert options(pod) == wanted | {"uid=1000", "gid=1000"}


def test_files_belong_to_the_user_of_the_pods() -> None:
    container = {"name": "worker", "securityContext": {"runAsUser": 2000}}
    template = {"spec": {"securityContext": {"runAsUser": 3000, "fsGroup": 4000}, "containers": [container]}}
    launcher, worker = pods(SHARE, worker={"gpus": 0, "template": template}, podSecurity="Baseline")
    assert {"uid=2000", "gid=4000"} < options(worker)
    assert {"uid=0", "gid=0"} < options(launcher)


def test_an_option_of_the_user_replaces_the_default_of_its_name() -> None:
    _, worker = pods({**SHARE, "mountOptions": ["actimeo=1", "brl", "vers=3.1.1", "uid=7"]})
    assert {"actimeo=1", "brl", "vers=3.1.1", "uid=7", "gid=1000"} < options(worker)
    assert not {"actimeo=30", "nobrl", "uid=1000"} & options(worker)


def test_one_share_can_be_mounted_twice_and_once_read_only() -> None:
    _, worker = pods(SHARE, {**SHARE, "name": "data", "directory": "cifar/data", "readOnly": True})
    first, second = mounts_of(worker)
    assert "readOnly" not in first
    assert second == {
        "name": "horovodjob-share-data",
        "mountPath": "/mnt/batchai/mounts/data",
        "subPath": "cifar/data",
        "readOnly": True,
    }
    assert shares_of(worker)[1]["csi"]["readOnly"] is True


def test_a_share_can_have_another_path_secret_and_server() -> None:
    server = "mystorageaccount.file.core.chinacloudapi.cn"
    _, worker = pods({**SHARE, "relativeMountPath": "a/b", "secretName": "key", "server": server})
    attributes = shares_of(worker)[0]["csi"]["volumeAttributes"]
    assert mounts_of(worker)[0]["mountPath"] == "/mnt/batchai/mounts/a/b"
    assert (attributes["secretName"], attributes["server"]) == ("key", server)


def test_a_managed_identity_takes_the_place_of_the_key() -> None:
    _, worker = pods({**SHARE, "clientID": "11111111-2222-3333-4444-555555555555"})
    attributes = shares_of(worker)[0]["csi"]["volumeAttributes"]
    assert attributes["clientID"] == "11111111-2222-3333-4444-555555555555"
    assert attributes["mountWithWorkloadIdentityToken"] == "true"
    assert attributes["storageAccount"] == "mystorageaccount"
    assert "secretName" not in attributes


def test_an_nfs_share_is_mounted_by_the_kubelet_itself() -> None:
    _, worker = pods({**SHARE, "protocol": "nfs", "readOnly": True})
    (volume,) = shares_of(worker)
    server = "mystorageaccount.file.core.windows.net"
    assert volume["nfs"] == {"server": server, "path": "/mystorageaccount/myshare", "readOnly": True}


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ('secrets "azure-storage-account-mystorageaccount-secret" not found', "kubectl create secret generic"),
        ("accountName(x) or accountKey is empty", "keys azurestorageaccountname and azurestorageaccountkey"),
        ("mount error(13): Permission denied", "az storage account keys list --account-name mystorageaccount"),
        ("mount error(13): Permission denied", "allowSharedKeyAccess prints as false: set clientID in spec.azureFiles"),
        (
            "rpc error: code = PermissionDenied desc = inline volume Secret batchaidev/key: service account "
            "system:serviceaccount:batchaidev:default is not authorized to get it",
            "kubectl create role read-share-keys --namespace team --verb=get --resource=secrets "
            "--resource-name=azure-storage-account-mystorageaccount-secret && kubectl create rolebinding",
        ),
        ("mount.nfs: access denied by server while mounting x:/x/myshare", "encryptInTransit"),
        ("mount error(2): No such file or directory", "az storage share-rm create"),
        ("mount error(115): Operation now in progress", "port 445"),
        ("mount error: could not resolve address for x.file.core.windows.net", "no such storage account"),
        ("driver name file.csi.azure.com not found in the list of registered CSI drivers", "--enable-file-driver"),
        ("something that nobody has seen", ""),
    ],
)
def test_a_failed_mount_has_a_message_with_the_remedy(words: str, remedy: str) -> None:
    text = azure_files.mount_remedy(training_job(azureFiles=[SHARE]), f"MountVolume.SetUp failed for volume: {words}")
    assert remedy in text
    assert bool(text) is bool(remedy)


def test_a_mount_that_is_denied_to_a_managed_identity_names_its_role_and_not_a_key() -> None:
    keyless = {**SHARE, "name": "keyless", "account": "other", "clientID": "11111111-2222-3333-4444-555555555555"}
    job = training_job(azureFiles=[SHARE, keyless])
    failed = 'MountVolume.SetUp failed for volume "horovodjob-share-{}" : mount error(13): Permission denied'
    text = azure_files.mount_remedy(job, failed.format("keyless"))
    assert "role 'Storage File Data SMB MI Admin' on account other" in text
    assert "az storage account update --name other --enable-smb-oauth true" in text
    assert "keys list" not in text
    assert "keys list --account-name mystorageaccount;" in azure_files.mount_remedy(job, failed.format("myshare"))


def test_the_role_for_the_key_is_that_of_the_jobs_service_account() -> None:
    job = training_job(azureFiles=[{**SHARE, "secretName": "key"}], serviceAccountName="trainer")
    denied = "inline volume Secret batchaidev/key: service account system:serviceaccount:x is not authorized to get it"
    text = azure_files.mount_remedy(job, denied)
    assert "--resource-name=key " in text
    assert f"--serviceaccount={job.metadata.namespace}:trainer" in text
