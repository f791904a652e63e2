"""`hvj cp`: files to a claim and back, through a pod whose commands run on this machine."""

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.cluster_state import ClusterState
from cli.kubelet import NODE, Kubelet
from cli.program import Hvj, hvj_process
from support.api_client import ROOT
from support.tutorial.page import blocks

Copy = Callable[..., tuple[int, str]]


@pytest.fixture
def claim(cluster: ClusterState, kubelet: Kubelet, tmp_path: Path) -> Path:
    """The volume of the claim `data` on this machine, where the pod mounts it."""
    cluster.claim()
    path = tmp_path / "volume"
    path.mkdir()
    kubelet.environment, kubelet.mounts = dict(os.environ), {"/claims/data": path}
    return path


@pytest.fixture
def copy(cluster: ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copy:
    """Exit code and standard error of `hvj cp`, whose pod starts and is deleted."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str]:
        with hvj_process("cp", "--image", "trainer:1", *words) as process:
            cluster.start_pod_of_hvj(NODE)
            errors = process.communicate()[1]
        assert cluster.pods_of_hvj() == []
        return process.returncode, errors

    return run


def contents(directory: Path) -> dict[str, bytes]:
    return {str(each.relative_to(directory)): each.read_bytes() for each in directory.rglob("*") if each.is_file()}


def test_a_directory_is_on_the_claim_under_its_path_and_comes_back(copy: Copy, claim: Path, tmp_path: Path) -> None:
    pets = tmp_path / "pets"
    for name in ("train/bee/1 ' ü.jpg", "train/bee/-n", "test/ant/2.jpg", ".hidden", "new\nline"):
        (pets / name).parent.mkdir(parents=True, exist_ok=True)
        (pets / name).write_bytes(os.urandom(70_000))
    (pets / "run.sh").write_text("")
    (pets / "run.sh").chmod(0o755)
    code, errors = copy("pets", "data:images/pets")
    assert code == 0, errors
    assert "writing to claim data through pod data-files-" in errors
    assert contents(claim) == {f"images/pets/{name}": data for name, data in contents(pets).items()}
    assert os.access(claim / "images/pets/run.sh", os.X_OK)
    assert copy("data:images/pets", "back")[0] == 0
    assert contents(tmp_path / "back") == contents(pets)
    (claim / "images" / "pets" / "other").write_text("kept")
    (pets / ".hidden").write_text("new")
    assert copy("pets", "data:images/")[0] == 0
    assert contents(claim / "images" / "pets") == {**contents(pets), "other": b"kept"}


def test_a_file_is_copied_as_cp_does(copy: Copy, claim: Path, tmp_path: Path) -> None:
    (tmp_path / "model.keras").write_bytes(data := os.urandom(10))
    (claim / "there").mkdir()
    for path, place in (("", "model.keras"), ("m/", "m/model.keras"), ("there", "there/model.keras"), ("m/b", "m/b")):
        assert copy("model.keras", f"data:{path}")[0] == 0
        assert (claim / place).read_bytes() == data
    assert copy("data:there/model.keras", "copied.keras")[0] == 0
    assert (tmp_path / "copied.keras").read_bytes() == data


def test_the_commands_of_the_page_copy_there_and_back(
    copy: Copy, claim: Path, cluster: ClusterState, tmp_path: Path
) -> None:
    (tmp_path / "pets").mkdir()
    for path in (tmp_path / "pets" / "bee.jpg", tmp_path / "labels.csv", claim / "runs" / "log"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(path.name)
    (block,) = blocks(ROOT / "docs" / "data.md", "console", "`hvj cp`")
    for line in block.replace("training-data:", "data:").splitlines():
        words = [cluster.namespace if word == "training" else word for word in shlex.split(line, comments=True)]
        assert words[:2] == ["hvj", "cp"]
        code, errors = copy(*words[2:])
        assert code == 0, errors
        if line.startswith("hvj cp labels.csv"):
            (tmp_path / "labels.csv").unlink()
    assert contents(claim) == {"pets/bee.jpg": b"bee.jpg", "pets/labels.csv": b"labels.csv", "runs/log": b"log"}
    assert contents(tmp_path / "runs") == {"log": b"log"}
    assert (tmp_path / "labels.csv").read_text() == "labels.csv"


def test_what_the_claim_refuses_is_one_sentence_and_leaves_nothing(copy: Copy, claim: Path, tmp_path: Path) -> None:
    (tmp_path / "model").write_text("x")
    (claim / "file").write_text("a file")
    code, errors = copy("model", "data:file/model")
    assert (code, "error: claim data did not take the files: mkdir: " in errors) == (1, True), errors
    code, errors = copy("data:missing", "back")
    assert (code, "/claims/data/missing does not exist on claim data" in errors) == (3, True), errors
    assert contents(claim) == {"file": b"a file"}


def test_a_wrong_place_is_refused_before_a_pod_is_created(hvj: Hvj, claim: Path, cluster: ClusterState) -> None:
    for words, code, sentence in (
        (("a", "b"), 2, "one of SOURCE and TARGET is on a claim, as CLAIM:PATH"),
        (("data:a", "data:b"), 2, "one of SOURCE and TARGET is on a claim, as CLAIM:PATH"),
        (("missing", "data:a"), 2, "missing does not exist on this machine"),
        (("data:../a", "b"), 2, "a path on a claim has no `..`"),
        (("other:a", "b"), 3, "claim other does not exist in namespace"),
    ):
        done = hvj("cp", *words)
        assert (done.code, sentence in done.stderr, done.stderr.count("\n")) == (code, True, 1), done.stderr
    assert cluster.pods_of_hvj() == []
