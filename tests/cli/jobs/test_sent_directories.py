"""The directory of `hvj run` on its way to a share or a claim, from which the job gets it."""

import hashlib
import json
import os
import signal
from base64 import b64decode, b64encode
from pathlib import Path

import pytest

from cli.azure_sign_in import CLIENT, azure_sign_in
from cli.cluster_state import ClusterState
from cli.job_share import ACCOUNT, connected_service
from cli.jobs.sent_code import SENT, unpacked
from cli.kubelet import NODE, Kubelet
from cli.program import Hvj, hvj_process
from horovodjob.client.jobs import job_creation
from horovodjob.client.jobs.manifests import Submission
from support.api_client import Api, wait_for
from support.azure_fakes.arm.server import Role
from support.azure_fakes.files.server import FilesService

__all__ = ["connected_service"]
DEFAULTS = "horovodjob.dev/job-defaults"
MOUNT = "/mnt/batchai/mounts/myshare"


def sent(service: FilesService) -> int:
    """How many files the share has received since the last call."""
    written = {each.path for each in service.requests if "comp=range" in each.query and each.method == "PUT"}
    service.requests.clear()
    return len(written)


def test_a_share_gets_a_file_once_and_the_job_makes_its_directory_from_it(
    hvj: Hvj, project: Path, cluster: ClusterState, member: None, connected_service: FilesService, tmp_path: Path
) -> None:
    (project / "run.sh").write_text("sh")
    (project / "run.sh").chmod(0o755)
    (project / "two words.txt").write_text("layers = 3")  # as the package's module
    share = connected_service.accounts[ACCOUNT].directory / "myshare"
    options = ("run", "--detach", "--quiet", "--share", "myshare")
    secret = f"/api/v1/namespaces/{cluster.namespace}/secrets/azure-storage-account-{ACCOUNT}-secret"
    assert (hvj(*options, "--dry-run", "train.py").code, cluster.api.find(secret), sent(connected_service)) == (
        0,
        None,
        0,
    )
    assert hvj(*options, "--name", "first", "train.py").code == 0
    assert sent(connected_service) == 4 + 1  # contents, and their list
    key = cluster.api.get(secret)["data"]["azurestorageaccountkey"]
    assert b64decode(key).decode() == connected_service.accounts[ACCOUNT].key
    other = {"azurestorageaccountkey": b64encode(b"the other key").decode()}
    cluster.api.patch(secret, {"data": other})
    (project / "train.py").write_text("changed")
    assert hvj(*options, "--name", "second", "train.py").code == 0
    assert sent(connected_service) == 1 + 1
    assert cluster.api.get(secret)["data"]["azurestorageaccountkey"] == other["azurestorageaccountkey"]
    assert hvj(*options, "--name", "third", "train.py").code == 0
    assert sent(connected_service) == 0
    jobs = [cluster.api.get(f"{cluster.jobs}/{name}") for name in ("first", "second")]
    commands = [job["spec"]["preparation"]["command"].replace(MOUNT, str(share)) for job in jobs]
    first, second = (unpacked(commands[0], tmp_path / "first"), unpacked(commands[1], tmp_path / "second"))
    assert first == SENT | {"run.sh": "sh", "two words.txt": "layers = 3"}
    assert second == first | {"train.py": "changed"}
    assert os.access(tmp_path / "first" / "run.sh", os.X_OK)
    (mounted,) = jobs[0]["spec"]["azureFiles"]
    assert (mounted["account"], mounted["share"]) == (ACCOUNT, "myshare")


def test_an_upload_to_a_share_that_was_killed_is_continued_by_the_next_run(
    hvj: Hvj, project: Path, cluster: ClusterState, connected_service: FilesService, tmp_path: Path
) -> None:
    for number in range(300):
        (project / f"part{number}.txt").write_text(f"{number}\n" * 1000)
    share = connected_service.accounts[ACCOUNT].directory / "myshare"

    def complete() -> list[Path]:
        # Unlike a glob, it is silent about a directory that gets another name meanwhile.
        found = (Path(folder, name) for folder, _, names in os.walk(share / "code/files") for name in names)
        return [path for path in found if ".hvj-" not in str(path)]

    with hvj_process("run", "--detach", "--share", "myshare", "--name", "train", "train.py") as process:
        wait_for("some files", lambda: len(complete()) > 10)
        process.send_signal(signal.SIGKILL)
        process.wait()
    there = complete()
    assert len(there) < 303, "the upload was over before it was killed"
    assert (cluster.api.items(cluster.jobs), list(share.glob("code/trees/*"))) == ([], [])
    assert len(there) >= 200, "no batch was complete"
    assert all(hashlib.sha256(path.read_bytes()).hexdigest() == path.name for path in there)
    connected_service.requests.clear()
    assert hvj("run", "--detach", "--quiet", "--share", "myshare", "--name", "train", "train.py").code == 0
    assert sent(connected_service) == 303 - len(there) + 2  # the others, where they are, and the list
    command = cluster.api.get(f"{cluster.jobs}/train")["spec"]["preparation"]["command"]
    files = unpacked(command.replace(MOUNT, str(share)), tmp_path / "code")
    assert (len(files), files["part299.txt"]) == (303, "299\n" * 1000)


def test_the_job_gets_the_files_as_they_were_read_or_the_one_that_changed_is_named(
    hvj: Hvj,
    project: Path,
    cluster: ClusterState,
    connected_service: FilesService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check, saved = job_creation.check, "notes.txt"

    def save_and_check(made: Submission) -> None:
        (project / saved).write_text("saved after the directory was read")
        check(made)

    monkeypatch.setattr(job_creation, "check", save_and_check)
    run = ("run", "--detach", "--quiet", "--share", "myshare", "--name")
    assert hvj(*run, "train", "train.py").code == 0
    share = connected_service.accounts[ACCOUNT].directory / "myshare"
    command = cluster.api.get(f"{cluster.jobs}/train")["spec"]["preparation"]["command"]
    assert "notes.txt" not in unpacked(command.replace(MOUNT, str(share)), tmp_path / "code")
    saved = "train.py"
    (project / saved).write_text("a new version")
    done = hvj(*run, "second", "train.py")
    assert (done.code, done.stderr.count("\n"), len(cluster.api.items(cluster.jobs))) == (1, 1, 1)
    assert "train.py changed while it was uploaded" in done.stderr
    assert list(share.rglob("*.hvj-*")) == []


@pytest.fixture
def storage(api: Api, cluster: ClusterState, kubelet: Kubelet, tmp_path: Path) -> Path:
    """The volume of the claim `data` on this machine, where the pods of `hvj` mount it. Their image has a default."""
    defaults = json.dumps({"image": "trainer:1"})
    api.patch(f"/api/v1/namespaces/{cluster.namespace}", {"metadata": {"annotations": {DEFAULTS: defaults}}})
    cluster.claim()
    path = tmp_path / "storage"
    path.mkdir()
    kubelet.environment, kubelet.mounts = dict(os.environ), {"/job/storage": path}
    return path


def run_on_claim(cluster: ClusterState, name: str, *options: str) -> tuple[int, str]:
    """Exit code and standard error of a run that sends its directory to the claim."""
    with hvj_process("run", "--detach", "--claim", "data", "--name", name, *options, "train.py") as process:
        cluster.start_pod_of_hvj(NODE)
        errors = process.communicate()[1]
    assert cluster.pods_of_hvj() == []
    return process.returncode, errors


def test_a_claim_gets_a_file_once_through_a_pod_that_a_member_of_the_namespace_may_create(
    project: Path, cluster: ClusterState, member: None, storage: Path, tmp_path: Path
) -> None:
    (project / "run.sh").write_text("sh")
    (project / "run.sh").chmod(0o755)
    (project / "two words.txt").write_text("layers = 3")  # as the package's module
    (project / "empty").touch()
    (project / "model.h5").write_bytes(os.urandom(3_000_000))
    (project / ".hvjignore").write_text("model.h5\n")
    (project / "large.txt").write_text("0123456789" * 100_000)
    assert run_on_claim(cluster, "first")[0] == 0
    files = {path.name: path.stat().st_ino for path in (storage / "code" / "files").iterdir()}
    assert len(files) == 7
    (project / "train.py").write_text("changed")
    assert run_on_claim(cluster, "second")[0] == 0
    now = {path.name: path.stat().st_ino for path in (storage / "code" / "files").iterdir()}
    assert (files.items() <= now.items(), len(now)) == (True, 8)
    assert sorted(path.name for path in (storage / "code").iterdir()) == ["files", "trees"]

    jobs = [cluster.api.get(f"{cluster.jobs}/{name}") for name in ("first", "second")]
    commands = [job["spec"]["preparation"]["command"].replace("/job/storage", str(storage)) for job in jobs]
    first, second = (unpacked(commands[0], tmp_path / "first"), unpacked(commands[1], tmp_path / "second"))
    assert first == {path: (project / path).read_text() for path in first} | {"train.py": "import package.model"}
    assert second == first | {"train.py": "changed"}
    assert os.access(tmp_path / "first" / "run.sh", os.X_OK)
    assert {"name": "storage", "mountPath": "/job/storage"} in jobs[0]["spec"]["volumeMounts"]
    assert jobs[0]["spec"]["outputs"][0]["pathPrefix"] == "/job/storage"


def test_a_claim_that_refuses_the_directory_and_a_file_that_changes_on_its_way_leave_neither_job_nor_pod(
    project: Path, cluster: ClusterState, storage: Path
) -> None:
    (storage / "code").write_text("a file")
    code, errors = run_on_claim(cluster, "train")
    assert (code, cluster.api.items(cluster.jobs)) == (1, [])
    assert "error: claim data did not take the directory: mkdir: cannot create directory" in errors
    (storage / "code").unlink()
    (project / "uptime").symlink_to("/proc/uptime")  # has other contents at each moment
    code, errors = run_on_claim(cluster, "train")
    assert (code, cluster.api.items(cluster.jobs)) == (1, [])
    assert "error: uptime changed while it was sent" in errors
    wait_for("the partial files to be deleted", lambda: not list((storage / "code").glob(".hvj-*")))
    assert list((storage / "code" / "files").iterdir()) == []


def test_a_claim_that_no_pod_can_write_is_refused_before_a_pod_is_created(
    hvj: Hvj, project: Path, cluster: ClusterState
) -> None:
    cluster.claim("data")
    cluster.claim("single", "ReadWriteOncePod")
    for claim, code, words in (
        ("single", 2, "claim single is ReadWriteOncePod, and a job has several pods"),
        ("data", 1, "only the operator knows its default image: create the job with --image"),
    ):
        done = hvj("run", "--claim", claim, "train.py")
        assert (done.code, words in done.stderr, done.stderr.count("\n")) == (code, True, 1), done.stderr
    assert (cluster.api.items(cluster.jobs), cluster.pods_of_hvj()) == ([], [])


def test_ctrl_c_deletes_the_pod_that_would_receive_the_directory(
    project: Path, cluster: ClusterState, storage: Path
) -> None:
    with hvj_process("run", "--claim", "data", "--name", "train", "train.py") as process:
        wait_for("the pod", cluster.pods_of_hvj)
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert (process.returncode, cluster.pods_of_hvj(), cluster.api.items(cluster.jobs)) == (130, [], [])


def test_a_run_takes_the_key_that_the_sign_in_may_list(
    hvj: Hvj, project: Path, cluster: ClusterState, member: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/api/v1/namespaces/{cluster.namespace}/secrets/azure-storage-account-{ACCOUNT}-secret"
    (tmp_path / "account" / "myshare").mkdir(parents=True)
    run = ("run", "--detach", "--quiet", "--share", "myshare", "--storage-account-name", ACCOUNT)
    with azure_sign_in(tmp_path, monkeypatch) as signed_in:
        refused = hvj(*run, "--name", "first", "train.py")
        assert (refused.code, cluster.api.find(path)) == (1, None)
        assert "Reader and Data Access" in refused.stderr
        signed_in.arm.assign(CLIENT, Role.KEY_READER)
        done = hvj(*run, "--name", "second", "train.py")
        assert (done.code, signed_in.account.key in done.stdout + done.stderr) == (0, False)
        key = cluster.api.get(path)["data"]["azurestorageaccountkey"]
        assert b64decode(key).decode() == signed_in.account.key
        assert [job["metadata"]["name"] for job in cluster.api.items(cluster.jobs)] == ["second"]
        signed_in.arm.requests.clear()
        cluster.api.patch(path, {"metadata": {"labels": {"seen": "true"}}})
        assert hvj(*run, "--name", "third", "train.py").code == 0
        assert cluster.api.get(path)["metadata"]["labels"]["seen"] == "true", "the namespace has the Secret"
