"""The files of a directory that a run sends."""

import os
import random
import re
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from horovodjob.client.errors import UsageError
from horovodjob.client.runs import archive, directory
from horovodjob.client.runs.directory import code_files
from horovodjob.client.runs.file_tree import FileTree, file_tree, unpack_command


def write(root: Path, **files: str) -> None:
    """Files by path, in which __ is a slash."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def paths(root: Path) -> list[str]:
    return [file.path for file in code_files(root)]


def test_files_that_an_ignore_file_names_are_left_out_and_hvjignore_decides_last(tmp_path: Path) -> None:
    write(tmp_path, train="", data__a="", data__b="", package__big="", package__small="", package__data__c="")
    (tmp_path / ".gitignore").write_text("/data/*\nbig\n")
    (tmp_path / ".hvjignore").write_text("!data/b\n.gitignore\n.hvjignore\n")
    (tmp_path / "package" / ".gitignore").write_text("!big\nsmall\n.gitignore\n")
    assert paths(tmp_path) == ["data/b", "package/big", "package/data/c", "train"]


def test_repositories_environments_and_caches_are_left_out(tmp_path: Path) -> None:
    names = {".git__config": "", ".venv__bin__python": "", "package____pycache____a": ""}
    write(tmp_path, train="", **{name.replace("____pycache____", "__caches__"): text for name, text in names.items()})
    (tmp_path / "package" / "caches").rename(tmp_path / "package" / "__pycache__")
    assert paths(tmp_path) == ["train"]


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    write(tmp_path, code__train="", shared__library="")
    (tmp_path / "code" / "shared").symlink_to(tmp_path / "shared")
    assert paths(tmp_path / "code") == ["shared/library", "train"]
    (tmp_path / "shared" / "back").symlink_to(tmp_path / "code")
    with pytest.raises(UsageError, match=r"back is a link to a directory above it; name it in \.hvjignore"):
        code_files(tmp_path / "code")


def test_a_link_to_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "lost").symlink_to(tmp_path / "missing")
    with pytest.raises(UsageError, match="a link to a file that does not exist"):
        code_files(tmp_path)


def test_environments_are_left_out_by_default_and_named_but_not_a_package_with_such_a_name(tmp_path: Path) -> None:
    write(tmp_path, train="", venv__bin__python="", node_modules__x="", a__env__lib="", model__env__rules="")
    (tmp_path / "model" / "env" / "__init__.py").touch()
    left_out: set[str] = set()
    found = [file.path for file in code_files(tmp_path, left_out)]
    assert found[-1] == "train"
    assert "model/env/rules" in found
    assert left_out == {"venv/", "node_modules/", "env/"}
    (tmp_path / ".hvjignore").write_text("!venv/\n.hvjignore\n")
    assert "venv/bin/python" in paths(tmp_path)


# Every byte that a name can have, and what shells, tar and `read` treat specially.
NAMES = [
    *(b"two\nlines", b"\n", b" ", b"a ", b" a", b"-rf", b"--", b"it's", b'"quoted"', b"back\\slash", b"\\0101", b"\\c"),
    *(b"$(HOME)", b"${HOME}", b"`id`", b"*", b"~", b"#x", b"tab\t", b"\r", b"\x1b[2J", b"%s%b", b"a;b&c|d", b"d e/f g"),
    *("é".encode(), "e\u0301".encode(), "准确率".encode(), b"\xff\xfe", bytes(range(1, 47)), bytes(range(48, 256))),
    b"n" * 255,
]


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_every_legal_name_arrives_as_it_is(tmp_path: Path, shell: str) -> None:
    source = tmp_path / "source"
    for number, name in enumerate(NAMES):
        path = Path(os.fsdecode(os.path.join(os.fsencode(source), name)))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number))
    files = code_files(source)
    expected = {os.fsencode(file.path): file.source.read_text() for file in files}
    assert set(expected) == set(NAMES)

    tree = file_tree(files)
    store = tmp_path / "volume" / "code"
    for kind in ("files/batch", "trees", "places"):
        (store / kind).mkdir(parents=True)
    places = {digest: number % 2 * "batch" for number, digest in enumerate(tree.sources)}
    for digest, path in tree.sources.items():
        (store / "files" / places[digest] / digest).write_bytes(path.read_bytes())
    (store / "places" / tree.name).write_bytes(tree.places(places).encode())
    (store / "trees" / tree.name).write_bytes(tree.listed.encode())
    command = unpack_command(tree, str(tmp_path / "volume"), str(tmp_path / "code")).replace("$$", "$")
    (tmp_path / "code").mkdir()
    subprocess.run([shell, "-c", command], check=True)
    assert contents(tmp_path / "code") == expected

    (tmp_path / "archive.tar.gz").write_bytes(archive.archive(source, files))
    (tmp_path / "unpacked").mkdir()
    subprocess.run(["tar", "-xzf", str(tmp_path / "archive.tar.gz"), "-C", str(tmp_path / "unpacked")], check=True)
    assert contents(tmp_path / "unpacked") == expected


@pytest.fixture
def sent(tmp_path: Path) -> FileTree:
    """A directory that a run has sent to the volume."""
    (tmp_path / "source").mkdir()
    write(tmp_path / "source", train="print()", empty="")
    tree = file_tree(code_files(tmp_path / "source"))
    store = tmp_path / "volume" / "code"
    for kind in ("files", "trees"):
        (store / kind).mkdir(parents=True)
    for digest, path in tree.sources.items():
        (store / "files" / digest).write_bytes(path.read_bytes())
    (store / "trees" / tree.name).write_bytes(tree.listed.encode())
    (tmp_path / "code").mkdir()
    return tree


def unpacked(tree: FileTree, root: Path, shell: str) -> subprocess.CompletedProcess[str]:
    command = unpack_command(tree, str(root / "volume"), str(root / "code")).replace("$$", "$")
    return subprocess.run([shell, "-c", f"{command} && echo prepared"], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize("text", ["", "import stolen", "print()"])
def test_a_file_that_another_job_planted_on_the_volume_is_not_run(
    text: str, shell: str, sent: FileTree, tmp_path: Path
) -> None:
    for path in (tmp_path / "volume" / "code" / "files").iterdir():
        path.write_text(text)
    done = unpacked(sent, tmp_path, shell)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search("code/files/[0-9a-f]{64} on the volume has other contents than this run sent", done.stderr)


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize("place", ["", "batch", "../stolen", "/etc", "$(touch x)", "*"])
def test_a_place_that_another_job_wrote_reaches_no_other_contents(
    place: str, shell: str, sent: FileTree, tmp_path: Path
) -> None:
    code = tmp_path / "volume" / "code"
    for name in ("files/batch", "stolen", "places"):
        (code / name).mkdir()
    for digest in sent.sources:
        (code / "files" / "batch" / digest).write_text("planted")
        (code / "stolen" / digest).write_text("stolen")
    (code / "places" / sent.name).write_text(f"{place}\n" * len(sent.sources))
    done = unpacked(sent, tmp_path, shell)
    assert (done.returncode, done.stdout) == ((0, "prepared\n") if not place else (1, "")), done.stderr
    if place == "batch":
        assert re.search("code/files/batch/[0-9a-f]{64} on the volume has other contents", done.stderr)


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_a_list_that_another_job_replaced_reaches_no_other_directory(
    shell: str, sent: FileTree, tmp_path: Path
) -> None:
    (tmp_path / "kept").write_text("kept")
    digest = next(iter(sent.sources))
    path = tmp_path / "volume" / "code" / "trees" / sent.name
    for line in (f"{digest} - ../kept\n", "../../../kept - copied\n", sent.listed + f"{digest} x ../kept\n", ""):
        path.write_text(line)
        done = unpacked(sent, tmp_path, shell)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"code/trees/{sent.name} on the volume has other contents" in done.stderr
    assert ((tmp_path / "kept").read_text(), contents(tmp_path / "code")) == ("kept", {})


def test_an_archive_that_somebody_replaced_in_the_config_map_is_not_run(tmp_path: Path) -> None:
    write(tmp_path / "source", train="print()")
    packed = archive.archive(tmp_path / "source", code_files(tmp_path / "source"))
    (tmp_path / "code").mkdir()
    (tmp_path / archive.KEY).write_bytes(packed)
    command = archive.unpack_command(packed, str(tmp_path), str(tmp_path / "code")).replace("$$", "$")
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 0
    write(tmp_path / "source", train="import stolen")
    (tmp_path / archive.KEY).write_bytes(archive.archive(tmp_path / "source", code_files(tmp_path / "source")))
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, "has other contents than this run sent" in done.stderr) == (1, True)
    assert contents(tmp_path / "code") == {b"train": "print()"}


def contents(root: Path) -> dict[bytes, str]:
    """The files by path."""
    return {os.fsencode(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def test_a_directory_with_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MOST_FILES", 2)
    write(tmp_path, a="", b="", c="")
    with pytest.raises(UsageError, match="more than 2 files; choose a directory with `workdir=`"):
        code_files(tmp_path)


def test_a_directory_that_no_config_map_can_hold_is_refused_with_its_largest_files(tmp_path: Path) -> None:
    (tmp_path / "model.h5").write_bytes(random.Random(1).randbytes(600 << 10))
    write(tmp_path, train="print()")
    with pytest.raises(UsageError, match=r"601 KiB compressed, .* The largest files: model\.h5 \(600 KiB\), train"):
        archive.archive(tmp_path, code_files(tmp_path))


def test_the_same_contents_are_the_same_config_map_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, train="print()")
    before = archive.archive(tmp_path, code_files(tmp_path))
    monkeypatch.setattr("time.time", lambda: 1.0)
    assert archive.archive(tmp_path, code_files(tmp_path)) == before


@pytest.mark.parametrize("package", ["horovodjob", "horovodjob_cli"])
def test_type_checkers_read_the_types_of_the_installed_package(package: str) -> None:
    assert (resources.files(package) / "py.typed").is_file()


def test_a_large_file_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    project = tmp_path / "project"
    project.mkdir()
    data = project / "data.bin"
    data.write_bytes(b"a" * (1 << 20))
    monkeypatch.setattr("time.time", lambda: data.stat().st_mtime + 10)
    (first,) = file_tree(code_files(project)).sources
    with monkeypatch.context() as unread:
        unread.setattr("hashlib.file_digest", lambda *_: pytest.fail("the file is read again"))
        assert list(file_tree(code_files(project)).sources) == [first]
    times = data.stat()
    data.write_bytes(b"b" * (1 << 20))
    os.utime(data, ns=(times.st_atime_ns, times.st_mtime_ns))  # as tar and rsync do
    assert list(file_tree(code_files(project)).sources) != [first]
    (tmp_path / "cache" / "horovodjob" / "digests.json").write_text("torn")
    assert len(file_tree(code_files(project)).sources) == 1
