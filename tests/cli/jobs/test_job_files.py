"""`hvj job file`: the files of a job, from its share or through a pod, also after its own pods are deleted."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from cli.cluster_state import TIME, ClusterState, condition
from cli.job_share import ACCOUNT, HOSTILE_HOST, LOGS, ROOT, SEGMENT, SHARE, asked, key, logs, service
from cli.kubelet import NODE, Kubelet
from cli.program import Hvj, hvj_process, terminal
from horovodjob.client.jobs import wait_limit
from horovodjob.escaping import COLOR
from support.api_client import Object, wait_for
from support.azure_fakes.files.server import FilesService

__all__ = ["asked", "key", "logs", "service"]


def append(path: Path, data: bytes) -> None:
    """As a pod does."""
    with path.open("ab") as file:
        file.write(data)


def end_of(process: subprocess.Popen[Any]) -> tuple[Any, Any, int]:
    """The further output of a process, and its exit code."""
    assert process.stdout
    assert process.stderr
    return process.stdout.read(), process.stderr.read(), process.wait()


def test_files_are_listed_as_in_batch_ai_with_links_that_need_no_authentication_and_downloaded(
    hvj: Hvj, key: str, logs: Path, tmp_path: Path
) -> None:
    (logs / "stdout.txt").write_bytes(data := os.urandom(500))
    (logs / "execution-train-launcher.log").touch()
    lines = hvj("job", "file", "list", "-j", "train", "-o", "table").stdout.splitlines()
    assert lines[0].split() == ["Name", "Type", "Size", "Modified"]
    assert [line.split()[:3] for line in lines[2:]] == [
        ["execution-train-launcher.log", "file", "0"],
        ["stdout.txt", "file", "500"],
    ]
    _, listed = hvj("job", "file", "list", "-j", "train", "--expiry", "5").data
    assert urlopen(listed["downloadUrl"]).read() == data
    assert hvj("job", "file", "download", "-j", "train", "-f", "stdout.txt").code == 0
    assert (tmp_path / "stdout.txt").read_bytes() == data
    assert hvj("job", "file", "download", "-j", "train", "--dest", "copy").code == 0
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == [
        "execution-train-launcher.log",
        "stdout.txt",
    ]


MOUNTED: tuple[tuple[Object, str, str], ...] = (
    ({"outputs": [{"id": "MODEL", "pathPrefix": f"{ROOT}/myshare", "pathSuffix": "m"}]}, "MODEL", f"{SEGMENT}/m"),
    ({"outputs": [{"id": "O", "pathPrefix": f"{ROOT}/myshare/a/"}]}, "O", f"a/{SEGMENT}"),
    ({"logs": {"pathPrefix": "/mnt/batchai/mounts/myshare"}}, "stdouterr", f"{SEGMENT}/stdouterr"),
    ({"logs": {"pathPrefix": f"{ROOT}/myshare/$(HOROVODJOB_NAME)"}}, "stdouterr", f"job-3/{SEGMENT}/stdouterr"),
    (
        {
            "azureFiles": [SHARE, SHARE | {"name": "b", "directory": "sub/dir", "relativeMountPath": "in/b"}],
            "logs": {"pathPrefix": f"{ROOT}/in/b/x"},
        },
        "stdouterr",
        f"sub/dir/x/{SEGMENT}/stdouterr",
    ),
)


def test_a_directory_is_found_where_its_share_is_mounted(
    hvj: Hvj, key: str, service: FilesService, cluster: ClusterState
) -> None:
    for number, (spec, directory, path) in enumerate(MOUNTED):
        cluster.create(
            f"job-{number}", labels={"horovodjob.dev/experiment": "cifar"}, **{"azureFiles": [SHARE], **spec}
        )
        cluster.run(f"job-{number}", outputPathSegment=SEGMENT)
        found = service.accounts[ACCOUNT].directory / "myshare" / path
        found.mkdir(parents=True)
        (found / f"f{number}").touch()
        done = hvj("job", "file", "list", "-j", f"job-{number}", "-d", directory, "--query", "[].name")
        assert done.data == [f"f{number}"]
        shutil.rmtree(found)
    old = ("--experiment", "cifar", "--job", "job_2", "--resource-group", "batchai.horovod")
    done = hvj("job", "file", "list", *old, "--workspace", cluster.namespace)
    assert (done.code, done.data) == (0, [])
    assert "has not written files yet" in done.stderr


def test_a_stream_waits_for_its_file_and_follows_it_to_its_last_byte_also_after_a_restart(
    workspace: str, key: str, service: FilesService, cluster: ClusterState
) -> None:
    cluster.create(**LOGS)
    data = "Epoch 1/25 – Verlust 0,5 €\n全体 😀".encode()
    with hvj_process("job", "file", "stream", "-j", "train", "-f", "stdout.txt", text=False) as process:
        output: Any = process.stdout
        cluster.run(outputPathSegment=SEGMENT)
        wait_for("a request to the share", lambda: service.requests)
        out = service.accounts[ACCOUNT].directory / "myshare" / "cifar" / SEGMENT / "stdouterr" / "stdout.txt"
        out.parent.mkdir(parents=True)
        append(out, data[:28])
        whole = data[:28].decode(errors="ignore").encode()
        assert output.read(len(whole)) == whole != data[:28]
        append(out, data[28:])
        assert output.read(len(data) - len(whole)) == data[len(whole) :]
        cluster.report(phase="Restarting", restarts=1)
        cluster.run()
        append(out, b"attempt 2\n")
        cluster.fail(exit_code=1)
        assert end_of(process) == (b"attempt 2\n", b"", 0)


def test_a_stream_ends_at_its_time_at_a_stalled_job_and_at_once_with_a_finished_one(
    hvj: Hvj, key: str, logs: Path, cluster: ClusterState, monkeypatch: pytest.MonkeyPatch
) -> None:
    (logs / "stdout.txt").write_text("Epoch 1/25\n")
    stream = ("job", "file", "stream", "-j", "train", "-f", "stdout.txt")
    done = hvj(*stream, "--timeout", "1s")
    assert (done.code, done.stdout) == (5, "Epoch 1/25\n")
    assert done.stderr == "error: job train did not end (Running) within 1 s (--timeout)\n"
    monkeypatch.setattr(wait_limit, "STALLED_SECONDS", 1)
    cluster.report(conditions=[condition("Stalled", "InvalidSpec", "Secret key is missing")])
    done = hvj(*stream)
    assert (done.code, done.stdout, "InvalidSpec: Secret key is missing" in done.stderr) == (4, "Epoch 1/25\n", True)
    assert hvj(*stream, "--wait-stalled", "--timeout", "3s").code == 5
    cluster.succeed()
    done = hvj(*stream)
    assert (done.code, done.stdout, done.stderr) == (0, "Epoch 1/25\n", "")
    (logs / "stdout.txt").unlink()
    done = hvj(*stream)
    assert (done.code, "stdout.txt does not exist on share myshare" in done.stderr) == (3, True)


def test_a_refusal_explains_why_files_cannot_be_listed(
    hvj: Hvj, key: str, service: FilesService, cluster: ClusterState
) -> None:
    cluster.create("shared", **LOGS)
    cluster.create("none")
    cluster.create("local", logs={"pathPrefix": "/tmp"})
    for name in ("shared", "none", "local"):
        cluster.run(name, outputPathSegment=SEGMENT)
    for arguments, code, words in (
        (("none",), 3, "no spec.logs; see `hvj job logs -n none`"),
        (("shared", "-d", "MODEL"), 3, "no output directory MODEL; it has: stdouterr"),
        (("shared", "-p", "../.."), 2, "is outside of the share"),
        (("shared", "-p", "deeper"), 3, "stdouterr/deeper does not exist on share myshare"),
        (("shared", "--account-name", "other"), 1, f"the files are in storage account {ACCOUNT}"),
        (("local",), 1, "is on no volume of job local"),
    ):
        done = hvj("job", "file", "list", "-j", *arguments)
        assert (done.code, done.stdout, done.stderr.count("\n")) == (code, "", 1), arguments
        assert words in done.stderr
    given = ("--storage-account-name", ACCOUNT, "--storage-account-key", service.accounts[ACCOUNT].keys[1])
    assert hvj("job", "file", "list", "-j", "shared", *given).data == []
    service.accounts[ACCOUNT].rotate()
    rotated = hvj("job", "file", "list", "-j", "shared")
    secret = f"azure-storage-account-{ACCOUNT}-secret"
    assert (rotated.code, f"does not accept the key in Secret {secret}" in rotated.stderr) == (1, True)
    assert key not in rotated.stderr


def test_a_job_does_not_decide_which_host_gets_credentials(hvj: Hvj, cluster: ClusterState, asked: list[Any]) -> None:
    cluster.create(**LOGS | {"azureFiles": [SHARE | {"server": HOSTILE_HOST}]})
    cluster.run(outputPathSegment=SEGMENT)
    given = ("--sas-token", "sv=1&sig=x", "--account-name", ACCOUNT)
    for credential in (given, ()):
        for command in (("list",), ("stream", "-f", "stdout.txt"), ("download",)):
            done = hvj("job", "file", command[0], "-j", "train", *command[1:], *credential)
            assert (done.code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
            assert f"allow it with --storage-host {HOSTILE_HOST} or HVJ_STORAGE_HOSTS={HOSTILE_HOST}" in done.stderr
            assert HOSTILE_HOST not in asked
    hvj("job", "file", "list", "-j", "train", *given, "--storage-host", HOSTILE_HOST)
    assert HOSTILE_HOST in asked


class Volume:
    """A volume of a job on this machine, and the containers that read it."""

    def __init__(self, cluster: ClusterState, kubelet: Kubelet, path: Path) -> None:
        self.path, self.cluster = path, cluster
        claim: Object = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        mount = {"name": "data", "mountPath": str(path)}
        self.job = cluster.create(volumes=[claim], volumeMounts=[mount], logs={"pathPrefix": f"{path}/logs"})
        cluster.run(outputPathSegment=SEGMENT)
        self.logs = path / "logs" / SEGMENT / "stdouterr"
        self.logs.mkdir(parents=True)
        kubelet.answer = run_here
        kubelet.pods.clear()


def run_here(command: list[str], stdin: bytes) -> tuple[bytes, bytes, int]:
    """The command as the container would run it."""
    done = subprocess.run(command, input=stdin, capture_output=True, check=False)
    return done.stdout, done.stderr, done.returncode


@pytest.fixture
def volume(cluster: ClusterState, kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Volume:
    """A job that writes to a claim."""
    monkeypatch.chdir(tmp_path)
    return Volume(cluster, kubelet, tmp_path / "data")


def test_files_of_a_claim_are_read_through_a_pod_of_the_job(hvj: Hvj, volume: Volume, tmp_path: Path) -> None:
    volume.cluster.pod(volume.job, "launcher", node=NODE)
    data = os.urandom(300_000)
    (volume.logs / "name with 'quotes' ü.bin").write_bytes(data)
    (volume.logs / ".hidden").touch()
    listed = hvj("job", "file", "list", "-j", "train").data
    names = [(each["name"], each["fileType"], each["contentLength"]) for each in listed]
    assert names == [(".hidden", "file", 0), ("name with 'quotes' ü.bin", "file", 300_000)]
    assert hvj("job", "file", "download", "-j", "train", "-f", "name with 'quotes' ü.bin", "--dest", "copy").code == 0
    assert (tmp_path / "copy").read_bytes() == data
    assert volume.cluster.pods_of_hvj() == []
    for arguments in (("list", "-p", "deeper"), ("download", "-f", "nothing")):
        done = hvj("job", "file", arguments[0], "-j", "train", *arguments[1:])
        assert (done.code, "does not exist on the job's volume" in done.stderr) == (3, True)


def test_files_of_a_claim_are_read_through_a_short_lived_pod_when_the_job_has_none(
    workspace: str, volume: Volume
) -> None:
    (volume.logs / "stdout.txt").write_text("all of it")
    volume.cluster.succeed()
    with hvj_process("job", "file", "stream", "-j", "train", "-f", "stdout.txt") as process:
        pod = volume.cluster.start_pod_of_hvj(NODE)
        output, errors = process.communicate()
    assert (output, process.returncode) == ("all of it", 0)
    assert errors == f"reading the job's volume through pod {pod['metadata']['name']}, which is deleted afterwards\n"
    assert volume.cluster.pods_of_hvj() == []
    (container,) = pod["spec"]["containers"]
    assert container["securityContext"]["runAsNonRoot"] is True
    assert [mount["readOnly"] for mount in container["volumeMounts"]] == [True]
    assert pod["metadata"]["ownerReferences"][0]["uid"] == volume.job["metadata"]["uid"]


def test_a_stream_of_a_claim_continues_without_the_pods_of_the_job(
    workspace: str, volume: Volume, kubelet: Kubelet
) -> None:
    volume.cluster.pod(volume.job, "launcher", node=NODE)
    out = volume.logs / "stdout.txt"
    out.write_text("first\n")
    with hvj_process("job", "file", "stream", "-j", "train", "-f", "stdout.txt") as process:
        assert process.stdout
        assert process.stdout.readline() == "first\n"
        append(out, "zuletzt €".encode())
        volume.cluster.api.delete(f"{volume.cluster.pods}/train-launcher", {"gracePeriodSeconds": 0})
        volume.cluster.succeed()
        volume.cluster.start_pod_of_hvj(NODE)
        assert end_of(process)[0] == "zuletzt €"
    assert volume.cluster.pods_of_hvj() == []


def test_a_reader_pod_that_cannot_start_is_reported_and_deleted(workspace: str, volume: Volume) -> None:
    volume.cluster.succeed()
    with hvj_process("job", "file", "list", "-j", "train") as process:
        (pod,) = wait_for("the pod", volume.cluster.pods_of_hvj)
        refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no nodes for it"}
        path = f"{volume.cluster.pods}/{pod['metadata']['name']}/status"
        volume.cluster.api.patch(path, {"status": {"phase": "Failed", "conditions": [refused]}})
        _, errors = process.communicate()
    assert (process.returncode, "did not start: no nodes for it" in errors) == (1, True)
    assert volume.cluster.pods_of_hvj() == []


def test_a_reader_pod_has_the_time_of_the_user_and_is_deleted_at_ctrl_c(hvj: Hvj, volume: Volume) -> None:
    volume.cluster.report(phase="Suspended")
    stream = ("job", "file", "stream", "-j", "train", "-f", "stdout.txt")
    for command in (("job", "file", "list", "-j", "train"), stream):
        done = hvj(*command, "--timeout", "1s")
        words = "which reads the job's volume, did not start within 1 s (--timeout)\n"
        assert (done.code, done.stderr.endswith(words)) == (5, True), done.stderr
    assert volume.cluster.pods_of_hvj() == []
    with hvj_process(*stream) as process:
        wait_for("the pod", volume.cluster.pods_of_hvj)
        process.send_signal(signal.SIGINT)
        _, errors, code = end_of(process)
    assert (code, "Traceback" in errors) == (130, False)
    assert volume.cluster.pods_of_hvj() == []


def test_an_nfs_share_is_read_through_a_pod_that_mounts_it(workspace: str, cluster: ClusterState) -> None:
    share = SHARE | {"protocol": "nfs", "directory": "sub"}
    cluster.create(azureFiles=[share], logs={"pathPrefix": f"{ROOT}/myshare"})
    cluster.run(outputPathSegment=SEGMENT)
    pods = f"{cluster.pods}?labelSelector=app.kubernetes.io/managed-by%3Dhvj"
    with hvj_process("job", "file", "list", "-j", "train"):
        (pod,) = wait_for("the pod", lambda: cluster.api.get(pods)["items"])
    (volume,), (container,) = pod["spec"]["volumes"], pod["spec"]["containers"]
    assert volume["nfs"] == {"server": f"{ACCOUNT}.file.core.windows.net", "path": f"/{ACCOUNT}/myshare"}
    (mount,) = container["volumeMounts"]
    assert (mount["mountPath"], mount["subPath"]) == ("/mnt/batchai/mounts/myshare", "sub")


def test_the_pod_that_reads_a_claim_has_the_image_that_the_operator_gives_the_job(
    hvj: Hvj, cluster: ClusterState, kubelet: Kubelet
) -> None:
    claim: Object = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    mounts = [{"name": "data", "mountPath": "/data"}]
    cluster.create(image="", volumes=[claim], volumeMounts=mounts, logs={"pathPrefix": "/data"})
    cluster.run(outputPathSegment=SEGMENT)
    done = hvj("job", "file", "list", "-j", "train")
    assert (done.code, "only the operator knows its default image" in done.stderr) == (1, True), done.stderr
    defaults = {"horovodjob.dev/job-defaults": json.dumps({"image": "trainer:2"})}
    cluster.api.patch(f"/api/v1/namespaces/{cluster.namespace}", {"metadata": {"annotations": defaults}})
    with hvj_process("job", "file", "list", "-j", "train"):
        (pod,) = wait_for("the pod", cluster.pods_of_hvj)
    assert [each["image"] for each in pod["spec"]["containers"]] == ["trainer:2"]


def test_a_download_ends_although_links_of_a_volume_form_loops(hvj: Hvj, volume: Volume, tmp_path: Path) -> None:
    volume.cluster.pod(volume.job, "launcher", node=NODE)
    for name in ("a", "b", "run-5"):
        (volume.logs / name).mkdir()
        (volume.logs / name / "data").write_text(name)
    links = {"loop": ".", "up": "..", "latest": "run-5", "best": "run-5", "a/to-b": "../b", "b/to-a": "../a"}
    links |= {"outside": "/proc/self", "itself": "itself", "broken": "nowhere"}
    for name, target in links.items():
        (volume.logs / name).symlink_to(target)
    os.mkfifo(volume.logs / "fifo")
    done = hvj("job", "file", "download", "-j", "train", "--dest", "copy", "-q")
    assert (done.code, done.stderr) == (0, "")
    copied = sorted(path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("data"))
    assert copied == ["a/data", "a/to-b/data", "b/data", "b/to-a/data", "best/data", "latest/data", "run-5/data"]


HOSTILE = "\x1b]52;c;cm0gLXJm\x07\x1b]0;bank\x07\u202e\x9b2J"


def test_names_of_files_and_messages_do_not_control_the_terminal(volume: Volume, cluster: ClusterState) -> None:
    volume.cluster.pod(volume.job, "launcher", node=NODE)
    (volume.logs / f"model{HOSTILE}").touch()
    cluster.report(conditions=[condition("Stalled", "X", f"no nodes{HOSTILE}")])
    for command in (
        ("file", "list", "-j", "train", "-o", "table"),
        ("file", "list", "-j", "train", "-o", "jsonc"),
        ("file", "download", "-j", "train", "-f", f"{HOSTILE}x"),
        ("show", "-n", "train", "-o", "table"),
    ):
        with terminal("job", *command) as screen:
            assert screen.end() == (2 if "download" in command else 0)
        assert "52;c;cm0gLXJm" in screen.shown
        assert not set(COLOR.sub("", screen.shown)) & set("\x1b\x07\x9b\u202e")


def test_the_progress_of_a_job_does_not_control_the_terminal(workspace: str, cluster: ClusterState) -> None:
    cluster.create()
    waits = condition("Reconciling", "X", f"no nodes{HOSTILE}end")
    queue = {"name": f"gpus{HOSTILE}", "position": 3}
    cluster.report(conditions=[waits], phase="Queued", executionState="queued", queue=queue)
    with (
        terminal("attach", "train", columns=200) as attach,
        terminal("job", "wait", "-n", "train", columns=200) as wait,
    ):
        for screen in (attach, wait):
            screen.until("no nodes^[]52;c;cm0gLXJm^G")
            screen.until("position 3")
        error = {"attempt": 1, "time": TIME, "reason": f"X{HOSTILE}", "message": f"ended{HOSTILE}"}
        cluster.fail(exit_code=3, errors=[error])
        assert (attach.end(), wait.end()) == (3, 3)
    for forbidden in ("\x1b]", "\x07", "\x9b", "\u202e"):
        assert forbidden not in attach.shown + wait.shown


def test_a_streamed_file_controls_the_terminal_only_if_it_is_asked_for(
    hvj: Hvj, volume: Volume, cluster: ClusterState
) -> None:
    volume.cluster.pod(volume.job, "launcher", node=NODE)
    (volume.logs / "stdout.txt").write_text(f"10%\r20%\n\x1b[31mred\x1b[0m{HOSTILE}\n")
    cluster.succeed()
    stream = ("job", "file", "stream", "-j", "train", "-f", "stdout.txt")
    with terminal(*stream) as screen:
        assert screen.end() == 0
    assert "10%\r20%\n\x1b[31mred" in screen.shown
    assert not set(COLOR.sub("", screen.shown)) & set("\x1b\x07\x9b\u202e")
    with terminal(*stream, "--raw") as screen:
        assert screen.end() == 0
    assert HOSTILE in screen.shown
    assert hvj(*stream).stdout.endswith(f"{HOSTILE}\n")  # a pipe has the bytes of the file
