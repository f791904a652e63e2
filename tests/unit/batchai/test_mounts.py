"""mountVolumes and containerSettings: shares, volumes, images and their Secrets."""

import json
from typing import Any

import pytest

from support.batchai_documents import Object, converted, mounts, problems, small, spec_of, warnings

KEY = "<AZURE_BATCHAI_STORAGE_KEY>"
ACCOUNT = "<AZURE_BATCHAI_STORAGE_ACCOUNT>"
SECRET = "azure-storage-account-account-secret"
SHARES, BLOBS = "properties.mountVolumes.azureFileShares[0]", "properties.mountVolumes.azureBlobFileSystems[0]"


def share(url: str = "https://account.file.core.windows.net/share", **fields: Any) -> Object:
    return {"azureFileUrl": url, "relativeMountPath": "share"} | fields


def files(**fields: Any) -> Object:
    return mounts("azureFileShares", share(**fields))


def image(name: str, **registry: Any) -> Object:
    return small(containerSettings={"imageSourceRegistry": {"image": name} | registry})


@pytest.mark.parametrize(
    ("url", "entry"),
    [
        ("https://account.file.core.windows.net/share/", {}),
        ("https://account.file.core.windows.net/share/a/b%20c/", {"directory": "a/b c"}),
        ("http://ACCOUNT.file.core.windows.net/share", {}),
        ("https://account.file.core.usgovcloudapi.net/share", {"server": "account.file.core.usgovcloudapi.net"}),
        ("https://account.file.core.chinacloudapi.cn/share", {"server": "account.file.core.chinacloudapi.cn"}),
    ],
)
def test_a_url_is_parsed_into_account_share_directory_and_cloud(url: str, entry: Object) -> None:
    base = {"name": "share", "account": "account", "share": "share"}
    assert spec_of(files(url=url))["azureFiles"] == [base | entry]


@pytest.mark.parametrize(
    "url",
    [
        "share",
        "https://account.blob.core.windows.net/share",
        "https://account.file.core.windows.net",
        "https://[account.file.core.windows.net/share",
        "https://account.file.core.windows.net/Share",
        "https://account.file.core.windows.net/share/../other",
        "https://a.file.core.windows.net/share",
        "https://account.file.core.windows.net/share?sv=2018&sig=s3cret",
    ],
)
def test_a_url_without_a_share_is_rejected_without_showing_its_signature(url: str) -> None:
    (found,) = problems(files(url=url)).items()
    assert found[0] == f"{SHARES}.azureFileUrl"
    assert "s3cret" not in found[1]


def test_the_account_of_the_file_must_match_the_url() -> None:
    assert f"{SHARES}.accountName" in problems(files(accountName="other"))
    assert spec_of(files(accountName="account"))["azureFiles"][0]["account"] == "account"


def test_the_key_of_an_account_is_that_of_the_file_or_of_an_option() -> None:
    document = files(
        url=f"https://{ACCOUNT}.file.core.windows.net/share", accountName=ACCOUNT, credentials={"accountKey": KEY}
    )
    result = converted(document, storage_account="account", storage_key="s3cret-key")
    assert result.job["spec"]["azureFiles"][0]["account"] == "account"
    (secret,) = result.secrets
    assert secret["metadata"]["name"] == SECRET
    assert secret["stringData"] == {"azurestorageaccountname": "account", "azurestorageaccountkey": "s3cret-key"}

    def key(document: Object, **options: str) -> object:
        made = converted(document, **options).secrets
        return made[0]["stringData"]["azurestorageaccountkey"] if made else None

    assert (key(files()), key(files(), storage_key="k")) == (None, "k")
    assert SECRET in warnings(files())
    assert key(files(), storage_key="k", storage_account="another") is None
    assert key(files(credentials={"accountKey": "own"}), storage_key="k") == "own"
    vault = files(credentials={"accountKeySecretReference": {"secretUrl": "https://v/k"}})
    assert key(vault, storage_key="k") is None
    assert f"create the Secret {SECRET}" in warnings(vault)


def test_a_placeholder_without_a_value_is_reported_with_option_and_variable() -> None:
    document = files(url=f"https://{ACCOUNT}.file.core.windows.net/share")
    sentence = problems(document)[f"{SHARES}.azureFileUrl"]
    assert "--storage-account-name" in sentence
    assert "AZURE_BATCHAI_STORAGE_ACCOUNT" in sentence
    sentence = problems(files(credentials={"accountKey": KEY}))[f"{SHARES}.credentials.accountKey"]
    assert "--storage-account-key" in sentence
    assert "AZURE_BATCHAI_STORAGE_KEY" in sentence


def test_two_keys_of_one_account_are_rejected() -> None:
    other = share(relativeMountPath="other", credentials={"accountKey": "b"})
    document = mounts("azureFileShares", share(credentials={"accountKey": "a"}), other)
    assert list(problems(document)) == ["properties.mountVolumes.azureFileShares[1].credentials"]


def test_modes_become_mount_options() -> None:
    entry = spec_of(files(fileMode="0644", directoryMode="0755"))["azureFiles"][0]
    assert entry["mountOptions"] == ["dir_mode=0755", "file_mode=0644"]
    assert f"{SHARES}.fileMode" in problems(files(fileMode="rw"))


def test_mount_paths_become_names_and_keep_their_location() -> None:
    shares = [share(relativeMountPath=path) for path in ("data", "My_Data", "my/data", "my-data")]
    entries = spec_of(mounts("azureFileShares", *shares))["azureFiles"]
    assert [entry["name"] for entry in entries] == ["data", "my-data", "my-data-2", "my-data-3"]
    assert [entry.get("relativeMountPath") for entry in entries] == [None, "My_Data", "my/data", "my-data"]


@pytest.mark.parametrize("path", ["..", "a/../b", "/", "", "a:b", "$HOME", None])
def test_a_mount_path_outside_the_mount_root_is_rejected(path: object) -> None:
    assert list(problems(files(relativeMountPath=path))) == [f"{SHARES}.relativeMountPath"]


def test_two_mounts_at_one_path_are_rejected() -> None:
    document = mounts("azureFileShares", share(), share(relativeMountPath="share/"))
    assert list(problems(document)) == ["properties.mountVolumes.azureFileShares[1].relativeMountPath"]


def test_a_blob_container_is_mounted_by_the_blob_csi_driver() -> None:
    blob = {"accountName": "account", "containerName": "pictures", "relativeMountPath": "in/pictures"}
    spec = spec_of(mounts("azureBlobFileSystems", blob))
    (volume,) = spec["volumes"]
    assert volume["csi"]["driver"] == "blob.csi.azure.com"
    assert volume["csi"]["volumeAttributes"] == {
        "containerName": "pictures",
        "secretName": SECRET,
        "mountOptions": "-o allow_other",
    }
    assert spec["volumeMounts"] == [{"name": volume["name"], "mountPath": "/mnt/batchai/mounts/in/pictures"}]
    assert f"{BLOBS}.containerName" in problems(mounts("azureBlobFileSystems", blob | {"containerName": None}))


def test_an_option_sets_the_address_of_a_file_server() -> None:
    server = {"fileServer": {"id": "/x/fileServers/nfs"}, "sourceDirectory": "sets", "relativeMountPath": "data"}
    document = mounts("fileServers", server)
    nfs = {"server": "10.0.0.9", "path": "/export/sets"}
    assert spec_of(document)["volumes"] == [{"name": "nfs-data", "nfs": nfs}]
    read_only = spec_of(mounts("fileServers", server | {"mountOptions": "-o ro"}))
    assert read_only["volumes"][0]["nfs"] == nfs | {"readOnly": True}
    sentence = problems(document)["properties.mountVolumes.fileServers[0].fileServer.id"]
    assert "--nfs-server nfs=HOST:/PATH" in sentence
    assert "--nfs-server" in problems(document, nfs_servers={"nfs": "10.0.0.9"})
    assert "soft needs a PersistentVolume" in warnings(mounts("fileServers", server | {"mountOptions": "rw,soft"}))


@pytest.mark.parametrize(
    ("command", "source"),
    [
        ("mount -t nfs 10.0.0.4:/x", {"nfs": {"server": "10.0.0.4", "path": "/x"}}),
        ("sudo mount -o ro 10.0.0.4:/ -t nfs4", {"nfs": {"server": "10.0.0.4", "path": "/", "readOnly": True}}),
        (
            "mount -t cifs //s/a -o vers=3.0,dir_mode=0777",
            {
                "csi": {
                    "driver": "smb.csi.k8s.io",
                    "volumeAttributes": {
                        "source": "//s/a",
                        "secretName": "job-smb-m",
                        "mountOptions": "vers=3.0,dir_mode=0777",
                    },
                }
            },
        ),
    ],
)
def test_an_nfs_or_smb_mount_command_becomes_a_volume(command: str, source: Object) -> None:
    document = mounts("unmanagedFileSystems", {"mountCommand": command, "relativeMountPath": "m"})
    (volume,) = spec_of(document)["volumes"]
    assert {key: value for key, value in volume.items() if key != "name"} == source


@pytest.mark.parametrize(
    "command",
    [
        "mount -t glusterfs g:/v",
        "mount",
        "sshfs h:/x",
        "mount -t nfs h:/x '",
        "mount -t nfs h:/a h:/b",
        "mount -t cifs h",
    ],
)
def test_an_unsupported_mount_command_is_rejected(command: str) -> None:
    document = mounts("unmanagedFileSystems", {"mountCommand": command, "relativeMountPath": "m"})
    assert list(problems(document)) == ["properties.mountVolumes.unmanagedFileSystems[0].mountCommand"]


@pytest.mark.parametrize(
    ("server", "name", "full"),
    [
        (None, "example/training:1", "example/training:1"),
        ("registry.example.com", "training:1", "registry.example.com/training:1"),
        ("https://registry.example.com/", "registry.example.com/training:1", "registry.example.com/training:1"),
        ("https://index.docker.io/v1/", "example/training:1", "example/training:1"),
    ],
)
def test_an_image_reference_includes_its_registry(server: str | None, name: str, full: str) -> None:
    assert spec_of(image(name, serverUrl=server))["image"] == full


def test_registry_credentials_become_a_pull_secret() -> None:
    document = image("r.example.com/a:1", credentials={"username": "u", "password": "s3cret"})
    result = converted(document)
    (secret,) = result.secrets
    assert result.job["spec"]["imagePullSecrets"] == [{"name": secret["metadata"]["name"]}]
    assert secret["type"] == "kubernetes.io/dockerconfigjson"
    auths = json.loads(secret["stringData"][".dockerconfigjson"])["auths"]
    assert auths["r.example.com"]["password"] == "s3cret"
    public = converted(image("a:1", credentials={"username": "u", "password": "s3cret"})).secrets[0]
    assert "https://index.docker.io/v1/" in public["stringData"][".dockerconfigjson"]
    reference = {"username": "u", "passwordSecretReference": {"secretUrl": "https://v/p"}}
    vault = image("r.example.com/a:1", credentials=reference)
    assert (converted(vault).secrets, spec_of(vault)["imagePullSecrets"]) == ((), [{"name": "job-registry"}])
    assert "kubectl create secret docker-registry job-registry --docker-server=r.example.com" in warnings(vault)


def test_a_job_without_an_image_requires_the_option() -> None:
    assert "--image" in problems(small(containerSettings=None))["properties.containerSettings"]
    empty = problems(small(containerSettings={"shmSize": "1g"}))
    assert "--image" in empty["properties.containerSettings.imageSourceRegistry.image"]
    assert spec_of(small(containerSettings=None), image="example/other:2")["image"] == "example/other:2"


@pytest.mark.parametrize("name", ["tensorflow/tensorflow:1.8.0-gpu", "example/a:cuda9.0-cudnn7", "microsoft/cntk:2.5"])
def test_an_image_without_kernels_for_current_gpus_causes_a_warning(name: str) -> None:
    assert "no kernels for today's GPUs" in warnings(image(name))
    assert "no kernels" not in warnings(image(name), image="example/other:2")
    assert "no kernels" not in warnings(image("tensorflow/tensorflow:2.18.0-gpu"))


@pytest.mark.parametrize(
    ("size", "quantity"),
    [("16gb", "16Gi"), ("16G", "16Gi"), ("512m", "512Mi"), ("1024k", "1024Ki"), ("99b", "99"), (64, "64")],
)
def test_dockers_units_are_binary(size: object, quantity: str) -> None:
    settings = {"shmSize": size, "imageSourceRegistry": {"image": "a"}}
    assert spec_of(small(containerSettings=settings))["shmSize"] == quantity
    invalid = small(containerSettings=settings | {"shmSize": "much"})
    assert list(problems(invalid)) == ["properties.containerSettings.shmSize"]
