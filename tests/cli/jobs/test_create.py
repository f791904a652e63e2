"""`hvj job create`: creates a job and its Secrets from a file, all or none."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.azure_sign_in import ACCOUNT, CLIENT, azure_sign_in
from cli.cluster.kueue_objects import QUEUE, Kueue
from cli.cluster_state import ClusterState
from cli.program import Hvj, hvj_process
from support.api_client import job as manifest
from support.azure_fakes.arm.server import Role

KEY = "c2VjcmV0"
ROOT = "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar"
TUTORIAL = {
    "$schema": "https://raw.githubusercontent.com/Azure/BatchAI/master/schemas/2018-05-01/job.json",
    "properties": {
        "nodeCount": 4,
        "horovodSettings": {"pythonScriptFilePath": f"{ROOT}/train.py", "commandLineArgs": f"--dir={ROOT}"},
        "stdOutErrPathPrefix": ROOT,
        "mountVolumes": {
            "azureFileShares": [
                {
                    "azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/myshare",
                    "relativeMountPath": "myshare",
                }
            ]
        },
        "containerSettings": {"imageSourceRegistry": {"image": "example.azurecr.io/trainer:1.0"}},
    },
}
SECRET = "azure-storage-account-mystorageaccount-secret"


@pytest.fixture
def job_json(tmp_path: Path) -> str:
    """The tutorial's job.json."""
    path = tmp_path / "job.json"
    path.write_text(json.dumps(TUTORIAL))
    return str(path)


def yaml_file(path: Path, *documents: Any) -> str:
    """A YAML file with these documents."""
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def test_a_missing_key_is_the_one_that_the_sign_in_may_list(
    hvj: Hvj, job_json: str, cluster: ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = ("job", "create", "-f", job_json, "-c", "gpunp", "--storage-account-name", ACCOUNT, "-n")
    secret = f"/api/v1/namespaces/{cluster.namespace}/secrets/{SECRET}"
    with azure_sign_in(tmp_path, monkeypatch) as signed_in:
        refused = hvj(*create, "first")
        assert refused.code == 0
        assert "check the name, or request the role Reader and Data Access" in refused.stderr
        assert f"the job needs the Secret {SECRET}" in refused.stderr
        signed_in.arm.assign(CLIENT, Role.KEY_READER)
        signed_in.arm.requests.clear()
        assert hvj(*create, "printed", "--dry-run").code == 0
        assert signed_in.arm.requests == []
        done = hvj(*create, "second")
        assert (done.code, "no key" in done.stderr, SECRET in done.stderr) == (0, False, False)
        data = cluster.api.get(secret)["data"]
        assert base64.b64decode(data["azurestorageaccountkey"]).decode() == signed_in.account.key
        signed_in.arm.requests.clear()
        assert hvj(*create, "third").code == 0
        assert signed_in.arm.requests == [], "the namespace has the Secret"


def test_the_command_of_the_tutorial_creates_its_job_and_mounts_of_the_old_command_line_are_added(
    hvj: Hvj, job_json: str, cluster: ClusterState
) -> None:
    where = ("--resource-group", "batchai.horovod", "--workspace", cluster.namespace, "--experiment", "cifar")
    what = ("--cluster", "gpunp", "--name", "cifar_distributed", "--config-file", job_json)
    mounts = ("--afs-name", "results", "--bfs-name", "images", "--bfs-mount-path", "blob", "--nfs", "files")
    files = ("--nfs-server", "files=10.0.0.4:/data", "--storage-account-name", "mystorageaccount")
    record = hvj("job", "create", *what, *where, *mounts, *files).data
    assert (record["name"], record["executionState"], record["nodeCount"]) == ("cifar_distributed", "queued", 4)
    show = ("job", "show", *where, "--name", "cifar_distributed")
    assert hvj(*show, "--query", "executionState").stdout == '"queued"\n'
    spec = cluster.api.get(f"{cluster.jobs}/cifar-distributed")["spec"]
    first, added = spec["azureFiles"]
    assert (spec["pool"], first["account"]) == ("gpunp", "mystorageaccount")
    assert (added["name"], added["account"], added["share"]) == ("afs", "mystorageaccount", "results")
    root = "/mnt/batchai/mounts"
    assert {mount["mountPath"] for mount in spec["volumeMounts"]} == {f"{root}/blob", f"{root}/nfs"}


def test_create_with_wait_exits_with_the_exit_code_of_the_job(tmp_path: Path, cluster: ClusterState) -> None:
    path = yaml_file(tmp_path / "job.yaml", manifest())
    with hvj_process("job", "create", "-f", path, "--wait", "--query", "executionState") as process:
        assert process.stderr
        assert process.stderr.readline().endswith(" Queued\n")
        cluster.fail(exit_code=4)
        stdout, _ = process.communicate()
    assert (process.returncode, stdout) == (4, '"failed"\n')


def names_of_secrets(cluster: ClusterState) -> list[str]:
    """Names of the Secrets in the workspace."""
    secrets = cluster.api.get(f"/api/v1/namespaces/{cluster.namespace}/secrets")["items"]
    return [secret["metadata"]["name"] for secret in secrets]


def test_account_and_key_come_from_the_old_variables_into_a_secret_that_a_second_job_shares(
    hvj: Hvj, job_json: str, cluster: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_BATCHAI_STORAGE_ACCOUNT", "mystorageaccount")
    monkeypatch.setenv("AZURE_BATCHAI_STORAGE_KEY", KEY)
    create = ("job", "create", "-f", job_json, "-c", "gpunp", "-n")
    for name in ("Cifar_1", "second"):
        done = hvj(*create, name)
        assert (done.code, KEY in done.stdout + done.stderr) == (0, False)
    assert SECRET in names_of_secrets(cluster)
    assert KEY not in json.dumps(cluster.api.get(cluster.jobs))
    done = hvj(*create, "third", "--storage-account-key", "b3RoZXI=")
    assert done.code == 1
    assert f"Secret {SECRET} exists in {cluster.namespace} with other values" in done.stderr
    assert "b3RoZXI=" not in done.stderr
    assert cluster.api.find(f"{cluster.jobs}/third") is None
    done = hvj(*create, "cifar-1")
    assert (done.code, "which job Cifar_1 already has" in done.stderr) == (1, True)
    assert hvj("job", "show", "-n", "CIFAR_1").code == 3


def secret(value: str) -> Any:
    """A Secret in the file of a job."""
    metadata = {"name": "train-secrets"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"A": value}}


def test_secrets_of_the_file_are_created_with_the_job_or_not_at_all(
    hvj: Hvj, tmp_path: Path, cluster: ClusterState
) -> None:
    for documents, words in (
        ((secret("1"), manifest(worker={"replicas": 0})), "spec.worker.replicas"),
        ((secret("1"), manifest(nodeCount=4)), "spec.nodeCount"),
        ((secret("1"), secret("2"), manifest()), "train-secrets exists"),
    ):
        done = hvj("job", "create", "-f", yaml_file(tmp_path / "job.yaml", *documents))
        assert (done.code, words in done.stderr, "older" in done.stderr) == (1, True, False), done.stderr
        assert (names_of_secrets(cluster), cluster.api.items(cluster.jobs)) == ([], [])
    create = ("job", "create", "-f", yaml_file(tmp_path / "job.yaml", secret("1"), manifest()))
    assert hvj(*create).code == 0
    path = f"/api/v1/namespaces/{cluster.namespace}/secrets/train-secrets"
    (owner,) = cluster.api.get(path)["metadata"]["ownerReferences"]
    assert owner["name"] == "train"
    again = hvj("job", "create", "-f", yaml_file(tmp_path / "job.yaml", manifest()))
    words = f"error: job train exists in namespace {cluster.namespace}; delete it or choose another name\n"
    assert (again.code, again.stderr) == (1, words)


def test_a_dry_run_prints_the_resource_in_its_namespace_and_creates_nothing(
    hvj: Hvj, job_json: str, tmp_path: Path, cluster: ClusterState
) -> None:
    name = ("--storage-account-name", "mystorageaccount", "-n", "cifar_distributed")
    for option in ("--dry-run", "--dry-run=client", "--dry-run=server"):
        printed = hvj("job", "create", "-f", job_json, *name, option, "-c", "gpunp", "-o", "yaml").data
        assert (printed["kind"], printed["metadata"]["name"]) == ("HorovodJob", "cifar-distributed")
    job = manifest()
    job["metadata"]["namespace"] = "default"
    create = (
        "job",
        "create",
        "-f",
        yaml_file(tmp_path / "job.yaml", job),
        "--dry-run",
        "--query",
        "metadata.namespace",
    )
    assert hvj(*create).data == "default"
    assert hvj(*create, "-w", cluster.namespace).data == cluster.namespace
    assert cluster.api.get(cluster.jobs)["items"] == []
    done = hvj(*create[:4], "-w", "nowhere")
    words = "error: namespace nowhere does not exist; `hvj workspace create -w nowhere` creates it\n"
    assert (done.code, done.stderr) == (3, words)


def test_an_invalid_file_or_option_is_a_usage_error_with_the_position(hvj: Hvj, tmp_path: Path) -> None:
    path = tmp_path / "job"
    for text, words in (
        ("", "is empty"),
        ("{", "is not valid JSON: line 1, column 2"),
        ("- 1", "has list where an object"),
        ('{"properties": {"nodeCount": "four"}}', "properties.nodeCount"),
        ("kind: Pod", "has neither a job.json of Batch AI nor a HorovodJob, but Pod"),
        ("kind: MPIJob", "`hvj convert -f"),
        ("kind: HorovodJob", "apiVersion is None; it must be horovodjob.dev/v1beta1"),
    ):
        path.write_text(text)
        done = hvj("job", "create", "-n", "train", "-f", str(path))
        assert (done.code, words in done.stderr) == (2, True), done.stderr
    done = hvj("job", "create", "-n", "train", "-f", "/nowhere/job.json")
    assert (done.code, done.stderr) == (2, "error: cannot read /nowhere/job.json: No such file or directory\n")
    create = ("job", "create", "-f", yaml_file(path, manifest("train")))
    for options, words in (
        (("--afs-name", "results"), "write spec.azureFiles"),
        (("--queue", "My GPUs"), "--queue 'My GPUs' must be the name of an object of Kueue"),
        (("--priority", "urgent"), "--priority has an effect only in a queue: add --queue"),
    ):
        done = hvj(*create, *options)
        assert (done.code, words in done.stderr) == (2, True), done.stderr


def test_a_queue_and_a_priority_become_the_labels_that_kueue_reads(
    hvj: Hvj, tmp_path: Path, cluster: ClusterState, kueue: Kueue
) -> None:
    options = ("--queue", QUEUE, "--priority", "urgent", "--storage-account-name", "mystorageaccount")
    for name, document in (("tutorial", TUTORIAL), ("manifest", manifest("manifest"))):
        path = yaml_file(tmp_path / "job.yaml", document)
        done = hvj("job", "create", "-n", name, "-f", path, *options)
        assert done.code == 0, done.stderr
    for created in cluster.api.items(cluster.jobs):
        labels = {name: value for name, value in created["metadata"]["labels"].items() if name.startswith("kueue")}
        assert labels == {"kueue.x-k8s.io/queue-name": QUEUE, "kueue.x-k8s.io/priority-class": "urgent"}
        assert created["spec"]["runPolicy"]["suspend"] is False
