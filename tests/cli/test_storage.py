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
    assert run("storage", "directory", "create", "--name", "cifar", *TUTORIAL_SHARE).data == {"created": True}
    assert run("storage", "file", "upload", "--path", "cifar", *TUTORIAL_SHARE, "--source", script.name).code == 0
    share = tmp_path / "account" / "myshare"
    assert (share / "cifar" / script.name).read_bytes() == script.read_bytes()
    (share / "cifar" / "saved_models").mkdir()
    (share / model).write_bytes(b"the model")
    assert run("storage", "file", "download", "--path", model, *TUTORIAL_SHARE).code == 0
    assert (tmp_path / "keras_cifar10_trained_model.h5").read_bytes() == b"the model"


def test_an_existing_share_or_directory_is_not_created_again(service: FilesService, disk: Path) -> None:
    assert run("storage", "share", "create", "--name", "myshare").data == {"created": False}
    (disk / "cifar").mkdir()
    assert run("storage", "directory", "create", "--name", "cifar", "--share-name", "myshare").data == {
        "created": False
    }


def test_a_listing_has_the_columns_of_batch_ai(service: FilesService, disk: Path) -> None:
    (disk / "saved_models").mkdir()
    (disk / "stdout.txt").write_text("12345")
    listing = run("storage", "file", "list", "--share-name", "myshare", "--output", "table")
    lines = listing.stdout.splitlines()
    assert lines[0].split() == ["Name", "Type", "Size", "Modified"]
    assert lines[2].split()[:2] == ["saved_models", "directory"]
    assert lines[3].split()[:3] == ["stdout.txt", "file", "5"]
    assert lines[3].split()[3].startswith("20")


def test_an_upload_keeps_the_file_name_or_gets_the_name_in_the_path(
    service: FilesService, disk: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("1")
    (disk / "d").mkdir()
    for path in ("", "d", "d/", "d/b.py", "c.py"):
        assert run("storage", "file", "upload", "--source", "a.py", "-s", "myshare", "--path", path).code == 0
    assert (names(disk), names(disk / "d")) == (["a.py", "c.py", "d"], ["a.py", "b.py"])


def test_directories_are_transferred_recursively(service: FilesService, disk: Path, tmp_path: Path) -> None:
    (tmp_path / "data" / "train").mkdir(parents=True)
    (tmp_path / "data" / "train" / "one.tar").write_text("1")
    assert run("storage", "file", "upload", "--source", "data", "-s", "myshare").code == 0
    assert (disk / "data" / "train" / "one.tar").read_text() == "1"
    assert run("storage", "file", "download", "--path", "data", "-s", "myshare", "--dest", "copy").code == 0
    assert (tmp_path / "copy" / "train" / "one.tar").read_text() == "1"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("file", "list", "-s", "nothing"), 3, "share nothing of storage account mystorageaccount does not exist"),
        (("file", "list", "-s", "myshare", "-p", "a/b"), 3, "a/b does not exist on share myshare"),
        (("file", "download", "-s", "myshare", "-p", "a.h5"), 3, "a.h5 does not exist on share myshare"),
        (("file", "upload", "-s", "myshare", "--source", "x", "-p", "no/y"), 3, "the directory of no/y does not exist"),
        (("file", "upload", "-s", "myshare", "--source", "z"), 2, "--source z does not exist"),
        (("file", "download", "-s", "myshare", "-p", "x", "--dest", "no/y"), 2, "the directory no does not exist"),
        (("file", "list", "-s", "myshare", "-p", "../x"), 2, "path '../x' is outside of the share"),
        (("file", "list", "-s", "My_Share"), 2, "share name 'My_Share'"),
        (("share", "create", "-n", "a--b"), 2, "share name 'a--b'"),
        (("directory", "create", "-s", "myshare", "-n", "a?"), 2, "path 'a?' has the character '?'"),
    ],
)
def test_invalid_input_is_reported_in_one_sentence(
    service: FilesService, disk: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    (tmp_path / "x").touch()
    done = run("storage", *arguments)
    assert (done.code, done.stdout) == (code, "")
    assert done.stderr.startswith("error: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert code != 2 or service.requests == []


def test_a_wrong_key_is_reported_by_its_source_and_not_shown(
    service: FilesService, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_BATCHAI_STORAGE_ACCOUNT", ACCOUNT)
    monkeypatch.setenv("AZURE_BATCHAI_STORAGE_KEY", key := new_key())
    done = run("storage", "file", "list", "-s", "myshare", "--debug")
    assert done.code == 1
    assert "does not accept the key in AZURE_BATCHAI_STORAGE_KEY; it was rotated" in done.stderr
    assert key not in done.stderr


def test_an_unknown_account_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_SERVICE_ENDPOINT", "https://train.file.invalid")
    done = run("storage", "file", "list", "-s", "myshare", "--account-name", "train", "--account-key", new_key())
    assert (done.code, done.stderr.count("\n")) == (1, 1)
    assert "storage account train: the host of https://train.file.invalid is unknown" in done.stderr


def test_without_an_account_the_error_describes_how_to_set_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING", raising=False)
    done = run("storage", "file", "list", "-s", "myshare")
    assert (done.code, "--account-name" in done.stderr) == (1, True)


@pytest.fixture
def signed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AzureSignIn]:
    """A workload identity without roles, the tutorial's account and its share."""
    monkeypatch.chdir(tmp_path)
    with azure_sign_in(tmp_path, monkeypatch) as found:
        (found.account.directory / "myshare").mkdir(parents=True)
        yield found


LIST = ("storage", "file", "list", *TUTORIAL_SHARE)


def test_a_role_for_the_files_requires_no_key(signed_in: AzureSignIn) -> None:
    signed_in.allow_files()
    assert run("storage", "directory", "create", "-n", "a", *TUTORIAL_SHARE).data == {"created": True}
    assert [each["name"] for each in run(*LIST).data] == ["a"]
    assert signed_in.arm.requests == []


@pytest.mark.parametrize(
    ("role", "options"),
    [
        (Role.KEY_READER, ()),
        (Role.KEY_READER, ("-g", GROUP)),
        (Role.KEY_OPERATOR, ("-g", GROUP, "--subscription", SUBSCRIPTION)),
    ],
)
def test_a_sign_in_that_may_list_the_key_needs_no_role_for_the_files(
    signed_in: AzureSignIn, role: Role, options: tuple[str, ...]
) -> None:
    signed_in.arm.assign(CLIENT, role)
    made = run("storage", "directory", "create", "-n", "a", *TUTORIAL_SHARE, *options, "--debug")
    assert made.data == {"created": True}
    assert signed_in.account.key not in made.stdout + made.stderr


@pytest.mark.parametrize(
    ("role", "words"),
    [
        (None, "shows no storage account mystorageaccount in the 0 subscriptions of your sign-in"),
        (Role.KEY_OPERATOR, "request the role Reader and Data Access on the account"),
        (Role.READER, "az role assignment create --role 'Storage Account Key Operator Service Role'"),
    ],
)
def test_a_sign_in_without_a_right_to_files_or_key_is_told_the_roles(
    signed_in: AzureSignIn, role: Role | None, words: str
) -> None:
    signed_in.arm.assign(CLIENT, role)
    done = run(*LIST)
    assert (done.code, done.stderr.count("\n")) == (1, 1)
    assert "lacks the role Storage File Data Privileged Contributor" in done.stderr
    assert words in done.stderr


def test_without_credentials_the_command_fails_at_once(service: FilesService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
    done = run("storage", "file", "list", "-s", "myshare", "--account-name", "other")
    assert (done.code, done.stderr.count("\n")) == (1, 1)
    assert "storage account other: no credentials; set --account-key" in done.stderr


def test_progress_fits_in_80_columns_and_quiet_hides_it(service: FilesService, disk: Path, tmp_path: Path) -> None:
    (tmp_path / "model.h5").write_bytes(bytes(9 * MIB))
    upload = ("storage", "file", "upload", "--source", "model.h5", "-s", "myshare")
    with terminal(*upload) as screen, terminal(*upload, "--quiet") as quiet:
        assert (screen.end(), quiet.end()) == (0, 0)
    assert "model.h5 " in screen.shown
    assert "━" in screen.shown
    assert "9.0/9.0 MiB" in screen.shown
    assert "━" not in quiet.shown
    assert run(*upload).stderr == ""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("source", ["model.h5", "data"])
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


def test_one_bar_shows_the_transfer_of_many_files(service: FilesService, disk: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number in range(60):
        (tmp_path / "data" / f"image-{number}").write_text("1")
    (tmp_path / "data" / "video").write_bytes(bytes(9 * MIB))
    with terminal("storage", "file", "upload", "--source", "data", "-s", "myshare") as screen:
        assert screen.end() == 0
    assert "video " in screen.shown
    last = screen.shown.rpartition("61 of 61 files")[2]
    assert "9.0/9.0 MiB" in last
    assert "image-" not in last


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


def test_an_upload_into_a_missing_directory_is_not_a_file_of_its_name(
    service: FilesService, disk: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("1")
    upload = ("storage", "file", "upload", "--source", "train.py", "-s", "myshare", "--path", "cifar")
    done = run(*upload)
    assert (done.code, names(disk)) == (3, [])
    assert "`hvj storage directory create --name cifar --share-name myshare`" in done.stderr
    (disk / "cifar").write_text("an existing file is replaced")
    assert run(*upload).code == 0
    assert (disk / "cifar").read_text() == "1"
