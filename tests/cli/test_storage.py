"""`hvj storage` against a service of Azure Files, as a user of `az storage` types it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.azure_sign_in import ACCOUNT, CLIENT, GROUP, AzureSignIn, azure_sign_in
from cli.program import SECONDS, hvj_process, run, terminal
from support.api_client import wait_for
from support.azure_fakes.arm.server import SUBSCRIPTION, Role
from support.azure_fakes.files.accounts import Account, new_key
from support.azure_fakes.files.faults import Kind
from support.azure_fakes.files.server import FilesService

MIB = 1 << 20
TUTORIAL_SHARE = ("--share-name", "myshare", "--account-name", ACCOUNT)


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FilesService]:
    """The tutorial's account without shares, which the environment names."""
    (tmp_path / "account").mkdir()
    monkeypatch.chdir(tmp_path)
    with FilesService([Account(ACCOUNT, tmp_path / "account")]) as running:
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", running.connection_string(ACCOUNT))
        yield running


@pytest.fixture
def disk(service: FilesService) -> Path:
    """The share `myshare` as pods see it."""
    directory = service.accounts[ACCOUNT].directory / "myshare"
    directory.mkdir()
    return directory


def names(directory: Path) -> list[str]:
    """Everything in a directory, hidden files too."""
    return sorted(path.name for path in directory.iterdir())


def test_the_steps_of_the_tutorial(service: FilesService, tmp_path: Path) -> None:
    script = tmp_path / "cifar_cnn_distributed.py"
    script.write_bytes(os.urandom(5000))
    model = "cifar/saved_models/keras_cifar10_trained_model.h5"
    assert run("storage", "share", "create", "--name", "myshare", "--account-name", ACCOUNT).data == {"created": True}
    assert run("storage", "share", "create", "--name", "myshare").data == {"created": False}
    for created in (True, False):
        assert run("storage", "directory", "create", "--name", "cifar", *TUTORIAL_SHARE).data == {"created": created}
    share = tmp_path / "account" / "myshare"
    for path, place in (
        ("cifar", f"cifar/{script.name}"),
        ("cifar/", f"cifar/{script.name}"),
        ("b.py", "b.py"),
        ("", script.name),
    ):
        assert run("storage", "file", "upload", "--path", path, *TUTORIAL_SHARE, "--source", script.name).code == 0
        assert (share / place).read_bytes() == script.read_bytes()
        (share / place).unlink()
    assert run("storage", "file", "upload", "--path", "cifar", *TUTORIAL_SHARE, "--source", script.name).code == 0
    (share / "cifar" / "saved_models").mkdir()
    (share / model).write_bytes(b"the model")
    assert run("storage", "file", "download", "--path", model, *TUTORIAL_SHARE).code == 0
    assert (tmp_path / "keras_cifar10_trained_model.h5").read_bytes() == b"the model"
    lines = run("storage", "file", "list", "--path", "cifar", *TUTORIAL_SHARE, "-o", "table").stdout.splitlines()
    assert lines[0].split() == ["Name", "Type", "Size", "Modified"]
    assert [line.split()[:2] for line in lines[2:]] == [[script.name, "file"], ["saved_models", "directory"]]
    assert run("storage", "file", "download", "--path", "cifar", *TUTORIAL_SHARE, "--dest", "copy").code == 0
    assert (tmp_path / "copy" / model.removeprefix("cifar/")).read_bytes() == b"the model"


@pytest.fixture
def signed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AzureSignIn]:
    """A workload identity without roles, the tutorial's account and its share."""
    monkeypatch.chdir(tmp_path)
    with azure_sign_in(tmp_path, monkeypatch) as found:
        (found.account.directory / "myshare").mkdir(parents=True)
        yield found


LIST = ("storage", "file", "list", *TUTORIAL_SHARE)


def test_sync_sends_what_differs_and_deletes_only_when_asked(service: FilesService, disk: Path, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.py").write_text("1")
    (disk / "code").mkdir()
    (disk / "code" / "old.py").touch()
    sync = ("storage", "file", "sync", "--source", "code", "-s", "myshare", "-p", "code")
    assert run(*sync).code == 0
    assert names(disk / "code") == ["a.py", "old.py"]
    assert run(*sync, "--delete").code == 0
    assert names(disk / "code") == ["a.py"]
    assert run(*sync[:4], "code/a.py", *sync[5:]).stderr == "error: --source code/a.py is not a directory\n"


def test_files_and_directories_are_deleted_after_a_confirmation(service: FilesService, disk: Path) -> None:
    (disk / "a" / "b").mkdir(parents=True)
    for path in ("a/b/c", "a/d", "e"):
        (disk / path).touch()
    delete = ("storage", "file", "delete", "-s", "myshare", "--path")
    assert "add --yes" in run(*delete, "e").stderr
    assert "`hvj storage directory delete --name a`" in run(*delete, "a", "--yes").stderr
    assert run(*delete, "nothing", "--yes").code == 3
    assert run(*delete, "e", "--yes").code == 0
    delete = ("storage", "directory", "delete", "-s", "myshare", "--name")
    assert run(*delete, "/", "--yes").code == 2
    assert run(*delete, "nothing", "--yes").code == 3
    assert run(*delete, "a").code == 2
    assert names(disk) == ["a"]
    assert run(*delete, "a", "--yes").code == 0
    assert names(disk) == []


def test_invalid_input_is_reported_in_one_sentence(service: FilesService, disk: Path, tmp_path: Path) -> None:
    for name in ("x", "x.py"):
        (tmp_path / name).touch()
    for arguments, code, words in (
        (("file", "list", "-s", "nothing"), 3, "share nothing of storage account mystorageaccount does not exist"),
        (("file", "list", "-s", "myshare", "-p", "a/b"), 3, "a/b does not exist on share myshare"),
        (("file", "download", "-s", "myshare", "-p", "a.h5"), 3, "a.h5 does not exist on share myshare"),
        (("file", "upload", "-s", "myshare", "--source", "x", "-p", "no/y"), 3, "the directory of no/y does not exist"),
        (
            ("file", "upload", "-s", "myshare", "--source", "x.py", "-p", "no"),
            3,
            "`hvj storage directory create --name no --share-name myshare`",
        ),
        (("file", "upload", "-s", "myshare", "--source", "z"), 2, "--source z does not exist"),
        (("file", "download", "-s", "myshare", "-p", "x", "--dest", "no/y"), 2, "the directory no does not exist"),
        (("file", "list", "-s", "myshare", "-p", "../x"), 2, "path '../x' is outside of the share"),
        (("file", "list", "-s", "My_Share"), 2, "share name 'My_Share'"),
        (("directory", "create", "-s", "myshare", "-n", "a?"), 2, "path 'a?' has the character '?'"),
    ):
        service.requests.clear()
        done = run("storage", *arguments)
        assert (done.code, done.stdout, done.stderr.count("\n"), words in done.stderr) == (code, "", 1, True), (
            done.stderr
        )
        assert code != 2 or service.requests == []
    assert names(disk) == []


def test_credentials_that_are_wrong_or_missing_are_reported_by_their_source(
    service: FilesService, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_ = ("storage", "file", "list", "-s", "myshare")
    done = run(*list_, "--account-name", "other")
    assert (done.code, done.stderr.count("\n")) == (1, 1)
    assert "storage account other: no credentials; set --account-key" in done.stderr
    with monkeypatch.context() as changed:
        changed.setenv("AZURE_BATCHAI_STORAGE_ACCOUNT", ACCOUNT)
        changed.setenv("AZURE_BATCHAI_STORAGE_KEY", key := new_key())
        done = run(*list_, "--debug")
        assert "does not accept the key in AZURE_BATCHAI_STORAGE_KEY; it was rotated" in done.stderr
        assert (done.code, key in done.stderr) == (1, False)
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING")
    done = run(*list_)
    assert (done.code, "--account-name" in done.stderr) == (1, True)
    monkeypatch.setenv("AZURE_STORAGE_SERVICE_ENDPOINT", "https://train.file.invalid")
    done = run(*list_, "--account-name", "train", "--account-key", new_key())
    assert (done.code, done.stderr.count("\n")) == (1, 1)
    assert "storage account train: the host of https://train.file.invalid is unknown" in done.stderr


def test_a_sign_in_needs_a_role_for_the_files_or_for_the_key(signed_in: AzureSignIn) -> None:
    make, data = ("storage", "directory", "create", *TUTORIAL_SHARE, "-n"), {"created": True}
    for role, words in (
        (None, "shows no storage account mystorageaccount in the 0 subscriptions of your sign-in"),
        (Role.KEY_OPERATOR, "request the role Reader and Data Access on the account"),
        (Role.READER, "az role assignment create --role 'Storage Account Key Operator Service Role'"),
    ):
        signed_in.arm.assign(CLIENT, role)
        done = run(*LIST)
        assert (done.code, done.stderr.count("\n")) == (1, 1)
        assert "lacks the role Storage File Data Privileged Contributor" in done.stderr
        assert words in done.stderr
    for role, name, options in (
        (Role.KEY_READER, "a", ()),
        (Role.KEY_OPERATOR, "b", ("-g", GROUP, "--subscription", SUBSCRIPTION)),
    ):
        signed_in.arm.assign(CLIENT, role)
        made = run(*make, name, *options, "--debug")
        assert made.data == data
        assert signed_in.account.key not in made.stdout + made.stderr
    signed_in.allow_files()
    signed_in.arm.requests.clear()
    assert run(*make, "c").data == data
    assert [each["name"] for each in run(*LIST).data] == ["a", "b", "c"]
    assert signed_in.arm.requests == []


def test_progress_is_one_bar_of_80_columns_and_quiet_hides_it(
    service: FilesService, disk: Path, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    for number in range(60):
        (tmp_path / "data" / f"image-{number}").write_text("1")
    (tmp_path / "data" / "video").write_bytes(bytes(9 * MIB))
    upload = ("storage", "file", "upload", "--source", "data", "-s", "myshare")
    with terminal(*upload) as screen:
        assert screen.end() == 0
    assert ("video " in screen.shown, "━" in screen.shown) == (True, True)
    last = screen.shown.rpartition("61 of 61 files")[2]
    assert ("9.0/9.0 MiB" in last, "image-" in last) == (True, False)
    with terminal(*upload, "--quiet") as quiet:
        assert quiet.end() == 0
    assert "━" not in quiet.shown
    assert run(*upload).stderr == ""


@pytest.mark.parametrize(
    ("number", "code", "source"), [(signal.SIGINT, 130, "model.h5"), (signal.SIGTERM, 143, "data")]
)
def test_a_signal_ends_an_upload_at_once_and_leaves_no_partial_file(
    service: FilesService, disk: Path, tmp_path: Path, number: int, code: int, source: str
) -> None:
    (tmp_path / "model.h5").write_bytes(bytes(40 * MIB))
    (tmp_path / "data").mkdir()
    for name in range(20):
        (tmp_path / "data" / str(name)).write_text("1")
    service.faults.add(Kind.SLOW, "PUT", "range", times=1000, seconds=10 * SECONDS)
    with hvj_process("storage", "file", "upload", "--source", source, "-s", "myshare") as process:
        wait_for("the upload to begin", lambda: service.is_delayed)
        process.send_signal(number)
        _, errors = process.communicate()
    assert (process.returncode, "Traceback" in errors) == (code, False)
    assert [path for path in disk.rglob("*") if path.is_file()] == []
