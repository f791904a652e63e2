"""A second run of a directory: the requests that it needs, and what it reads, do not grow with the directory."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from cli.cluster_state import ClusterState
from cli.job_share import connected_service
from cli.program import Hvj
from localcluster.control_plane.standalone import ControlPlane
from support.azure_fakes.files.server import FilesService

__all__ = ["connected_service"]
FILES = 60


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with many small files and a large one, which were written some time ago."""
    directory = tmp_path / "project"
    directory.mkdir()
    for number in range(FILES):
        (directory / f"part{number}.txt").write_text(f"{number}")
    (directory / "train.py").write_text("print(1)")
    (directory / "data.bin").write_bytes(os.urandom(5 << 20))
    monkeypatch.chdir(directory)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("horovodjob.client.runs.file_tree.RECENT_SECONDS", -1)
    return directory


@pytest.fixture
def large_reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The large files whose hash is computed."""
    read, digest = [], hashlib.file_digest

    def recorded(file: Any, name: str) -> Any:
        if os.fstat(file.fileno()).st_size > 1 << 20:
            read.append(Path(file.name))
        return digest(file, name)

    monkeypatch.setattr(hashlib, "file_digest", recorded)
    return read


def test_a_second_run_asks_the_share_what_it_has_and_reads_no_large_file_that_has_not_changed(
    hvj: Hvj,
    project: Path,
    cluster: ClusterState,
    control_plane: ControlPlane,
    connected_service: FilesService,
    large_reads: list[Path],
) -> None:
    run = ("run", "--detach", "--quiet", "--image", "trainer:1", "--gpus", "0", "--share", "myshare", "--name")

    def requests(name: str) -> tuple[list[str], list[str]]:
        """What a run asks the share, and the API server."""
        connected_service.requests.clear()
        known = len(control_plane.audit_log.read_text().splitlines())
        assert hvj(*run, name, "train.py").code == 0
        events = map(json.loads, control_plane.audit_log.read_text().splitlines()[known:])
        own = [each for each in events if each.get("userAgent") == "hvj"]
        asked = [f"{each['verb']} {each['objectRef'].get('resource')}" for each in own]
        return [f"{each.method} {each.query.partition('&')[0]}" for each in connected_service.requests], asked

    first, _ = requests("first")
    assert 2 * FILES < len(first) < 3 * FILES
    assert large_reads == [Path("data.bin")]
    large_reads.clear()
    share, cluster_requests = requests("second")
    # The files, their one batch, where they are, and the lists.
    assert (len(share), {each.partition(" ")[0] for each in share}) == (4, {"GET"}), share
    # Whether the job exists, the dry run, the Secret of the share, which exists, and the job.
    assert cluster_requests == ["get horovodjobs", "create horovodjobs", "create secrets", "create horovodjobs"]
    (project / "train.py").write_text("print(2)")
    share, again = requests("third")
    changed = [each for each in share if not each.startswith("GET")]
    # Three each: the file, where all are, and the list.
    assert (len(share) - len(changed), len(changed)) == (5, 3 + 3 + 3), share
    assert (again, large_reads) == (cluster_requests, [])
