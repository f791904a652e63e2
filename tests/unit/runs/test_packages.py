"""`--requirements`: pip runs once for a file and image, on the volume or in worker 0, and never beside the image."""

import os
import re
import signal
import socket
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from horovodjob.client.runs import install_packages, packages

SCRIPT = Path(install_packages.__file__)
TOKEN = "0" * 64
OTHER = "1" * 64


def wheel(directory: Path, name: str, version: str, *requires: str) -> None:
    """A wheel with a module of this name."""
    directory.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A requirements file, and an index on this machine that has its packages."""
    wheel(tmp_path / "index", "hvj_addon", "1.0", "pyyaml>=5")
    wheel(tmp_path / "index", "pyyaml", "99.0")
    (tmp_path / "requirements.txt").write_text("hvj-addon\n")
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(tmp_path / "index"), "LOG": str(tmp_path / "log")}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    for name in ("UID", "NAME", "POD"):
        monkeypatch.delenv(f"HOROVODJOB_{name}", raising=False)
    return tmp_path


def start(project: Path, target: str, store: str = "", token: str = TOKEN) -> "subprocess.Popen[str]":
    """The installation in a container of its own."""
    where = str(project / store) if store else ""
    words = [sys.executable, str(SCRIPT), str(project / "requirements.txt"), str(project / target), where, token]
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)


def install(project: Path, target: str, store: str = "", token: str = TOKEN) -> str:
    """What the installation prints if it fails; empty after success."""
    process = start(project, target, store, token)
    errors = process.communicate(timeout=120)[1]
    assert bool(process.returncode) is bool(errors), errors
    return errors


def pip_runs(project: Path) -> int:
    """How often pip has installed the package."""
    log = project / "log"
    return log.read_text().count("Successfully installed hvj") if log.exists() else 0


def test_nodes_and_later_runs_take_the_packages_of_the_first_and_nothing_that_another_job_plants(
    project: Path,
) -> None:
    both = [start(project, name, "store") for name in ("a", "b")]
    assert [process.communicate(timeout=120)[1] for process in both] == ["", ""]
    assert install(project, "c", "store") == ""
    for name in "abc":
        assert (project / name / "hvj_addon.py").read_text() == "VERSION = '1.0'\n"
        assert not (project / name / "pyyaml.py").exists(), "the image has it"
    assert pip_runs(project) == 1
    (kept,) = (project / "store").iterdir()
    assert kept.suffix == ".tar"
    kept.write_bytes(kept.read_bytes().replace(b"VERSION = '1.0'", b"VERSION = '6.6'"))
    assert install(project, "d", "store") == ""
    assert "1.0" in (project / "d" / "hvj_addon.py").read_text()
    assert pip_runs(project) == 2
    assert install(project, "e", "store", OTHER) == ""  # another user has another key, and an archive of her own
    assert pip_runs(project) == 3
    (project / "requirements.txt").write_text("hvj-addon==1.0\n")
    assert install(project, "f", "store") == ""
    assert pip_runs(project) == 4


def test_an_installation_that_was_killed_is_taken_over(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install_packages, "LOCK_SECONDS", 0.5)
    monkeypatch.setattr(install_packages, "POLL_SECONDS", 0.1)
    with monkeypatch.context() as killed:
        killed.setattr(install_packages, "_build", lambda *_: os._exit(9))
        if not (child := os.fork()):
            main(project, "a")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert [path.suffix for path in (project / "store").iterdir()] == [".lock"]
    main(project, "b")
    assert (project / "b" / "hvj_addon.py").exists()
    assert [path.suffix for path in (project / "store").iterdir()] == [".tar"]


def main(project: Path, target: str) -> None:
    """The installation in this process."""
    install_packages.main(str(project / "requirements.txt"), str(project / target), str(project / "store"), TOKEN)


def test_what_cannot_be_installed_is_one_sentence_and_leaves_nothing(project: Path) -> None:
    (project / "requirements.txt").write_text("hvj-addon\npyyaml>=99\n")
    error = install(project, "a", "store")
    assert error.count("\n") == 1
    assert error.startswith("requirements.txt cannot be installed: ")
    assert re.search(r"; the image has pyyaml==[0-9.]+, which it keeps: change requirements.txt, or use another", error)
    (project / "requirements.txt").write_text("hvj-missing\n")
    error = install(project, "a", "store")
    assert (error.count("\n"), "hvj-missing" in error) == (1, True), error
    assert list((project / "store").iterdir()) == []


def test_without_a_volume_the_other_workers_take_the_packages_of_worker_0(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVODJOB_UID", str(project))
    monkeypatch.setenv("HOROVODJOB_NAME", "train")
    monkeypatch.setattr(install_packages, "POLL_SECONDS", 0.1)
    resolve = socket.getaddrinfo

    def in_cluster(host: Any, *others: Any, **options: Any) -> Any:
        return resolve("127.0.0.1" if host == "train-worker-0.train" else host, *others, **options)

    monkeypatch.setattr(socket, "getaddrinfo", in_cluster)
    monkeypatch.setenv("HOROVODJOB_POD", "train-worker-0")
    try:
        assert install(project, "a") == ""
        monkeypatch.setenv("HOROVODJOB_POD", "train-worker-1")
        install_packages.main(str(project / "requirements.txt"), str(project / "b"), "", TOKEN)
        assert (project / "b" / "hvj_addon.py").exists()
        assert pip_runs(project) == 1
    finally:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            if str(project / "a").encode() in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)
    monkeypatch.setattr(install_packages, "SILENT_SECONDS", 0.5)
    install_packages.main(str(project / "requirements.txt"), str(project / "c"), "", TOKEN)
    assert pip_runs(project) == 2, "worker 0 is lost"
    monkeypatch.setattr(install_packages, "SILENT_SECONDS", 3600)
    monkeypatch.setenv("HOROVODJOB_NAME", "2nd")
    install_packages.main(str(project / "requirements.txt"), str(project / "d"), "", TOKEN)
    assert pip_runs(project) == 3, "no Service has this name"


def test_the_key_of_a_user_is_private_and_the_same_in_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "requirements.txt").write_text("a")
    (tmp_path / "other.txt").write_text("b")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "one"))
    first = packages.token(tmp_path / "requirements.txt")
    assert packages.token(tmp_path / "requirements.txt") == first != packages.token(tmp_path / "other.txt")
    assert (tmp_path / "one" / "horovodjob" / "packages-key").stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "two"))
    assert packages.token(tmp_path / "requirements.txt") != first
