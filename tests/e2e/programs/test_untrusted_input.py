"""Values that could break out of scripts, paths and files, and volumes that are full or disappear."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.access import wait_for
from e2e.namespace import HELD, RESTRICTED, Namespace, volume
from support.api_client import Object

# A directory with characters that shells, printf and hostfiles interpret. `$(NAME)` is replaced by Kubernetes.
ODD = "/data/a b/'q' \"d\" `touch oops` $HOME ${X} ;touch oops; %s * ~ # -rf é\ttab\nslots=9"
TELL = """
import json, os
names = ("OUTPUT_A", "STDOUTERR_DIR", "INPUT_I")
print(json.dumps({name: os.environ[f"AZ_BATCHAI_{name}"] for name in names}))
open(os.environ["AZ_BATCHAI_OUTPUT_A"] + "/made", "w").close()
"""


KINDS = (("execution", "log"), ("stdout-job_prep", "txt"), ("stderr-job_prep", "txt"))
# More than the volume holds.
FLOOD = 'i=0; while [ $i -lt 3000 ]; do i=$((i + 1)); echo "line $i $(printf %0900d 0)"; done; echo the end'
SUFFIX = "models 'x' $(unknown) `y`"


@pytest.fixture(scope="module")
def directory(shared_directory: Callable[[str], Path]) -> Path:
    """The volume of the job with special characters in its paths."""
    made = shared_directory("hostile")
    folder = made / ODD.removeprefix("/data/")
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    (folder / "a script.py").write_text(TELL)
    return made


@pytest.fixture(scope="module")
def shared_namespace(module_namespace: Namespace, directory: Path) -> Namespace:
    """The namespace, with the jobs on volumes that do not disappear."""
    namespace = module_namespace
    volumes = [{"name": "small", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]
    mounts = [{"name": "small", "mountPath": "/small"}]
    small = {"logs": {"pathPrefix": "/small"}, "volumes": volumes, "volumeMounts": mounts}
    fill = {"name": "fill", "image": namespace.image, "volumeMounts": mounts, "securityContext": RESTRICTED}
    fill["command"] = ["sh", "-c", "head -c 2000000 /dev/zero >/small/ballast || true"]
    full = {"template": {"spec": {"initContainers": [fill]}}}
    namespace.apply(
        _odd(namespace, directory),
        namespace.job("fills", FLOOD, **small),
        namespace.job("full", "echo the end", launcher=full, worker=full, **small),
    )
    return namespace


def _odd(namespace: Namespace, directory: Path) -> Object:
    volumes, mounts = volume(namespace, directory)
    job = namespace.job(
        "odd",
        script={"path": f"{ODD}/a script.py"},
        worker={"replicas": 2},
        preparation={"command": 'echo "prepared in $AZ_BATCHAI_STDOUTERR_DIR"'},
        inputs=[{"id": "I", "path": ODD}],
        outputs=[{"id": "A", "pathPrefix": ODD, "pathSuffix": SUFFIX}],
        logs={"pathPrefix": ODD},
        volumes=volumes,
        volumeMounts=mounts,
    )
    job["metadata"]["labels"] = {"horovodjob.dev/experiment": "A-b_c.D"}
    job["metadata"]["annotations"] = {"kueue.x-k8s.io/podset-odd": ODD, "example.com/odd": ODD}
    return job


def test_special_characters_in_paths_have_no_effect(shared_namespace: Namespace, directory: Path) -> None:
    segment = shared_namespace.wait_phase("odd", "Succeeded")["outputPathSegment"]
    own = directory / ODD.removeprefix("/data/") / segment
    out = {
        "OUTPUT_A": f"{ODD}/{segment}/{SUFFIX}",
        "STDOUTERR_DIR": f"{ODD}/{segment}/stdouterr",
        "INPUT_I": ODD,
    }
    assert [json.loads(line) for line in shared_namespace.output("odd")] == [out, out]
    assert (own / SUFFIX / "made").exists()
    files = {file.name for file in (own / "stdouterr").iterdir()}
    assert files == {
        "stdout.txt",
        "stderr.txt",
        "execution-odd-launcher.log",
        *(f"{what}-odd-worker-{index}.{end}" for what, end in KINDS for index in (0, 1)),
    }
    prepared = (own / "stdouterr" / "stdout-job_prep-odd-worker-0.txt").read_text()
    assert f"prepared in {out['STDOUTERR_DIR']}\n" in prepared
    assert not list(directory.rglob("oops"))


def test_a_full_volume_loses_log_files_is_reported_once_and_the_job_succeeds(shared_namespace: Namespace) -> None:
    for name in ("fills", "full"):
        shared_namespace.wait_phase(name, "Succeeded")
        wait_for("the end", lambda name=name: "\nthe end\n" in shared_namespace.log(f"{name}-launcher"))  # type: ignore[misc]
    lines = shared_namespace.log("fills-launcher").splitlines()
    assert sum(line.startswith("line ") for line in lines) == 3000
    assert sum("No space left on device" in line for line in lines) == 1
    lines = shared_namespace.log("full-launcher").splitlines()
    assert sum("cannot write to /small/" in line for line in lines) == 1
    assert not [line for line in lines if "No space left" in line]


@pytest.fixture
def unsteady(shared_directory: Callable[[str], Path]) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A FUSE mount and the process that serves it: without the process the directory is unusable."""
    place = shared_directory("unsteady")
    folders = {name: place / name for name in ("share", "lowerdir", "upperdir", "workdir")}
    for folder in folders.values():
        folder.mkdir(mode=0o777)
        folder.chmod(0o777)
    options = ",".join(f"{name}={folders[name]}" for name in ("lowerdir", "upperdir", "workdir"))
    server = subprocess.Popen(["fuse-overlayfs", "-f", "-o", f"{options},allow_other", str(folders["share"])])
    try:
        wait_for("the mount", folders["share"].is_mount)
        yield folders["share"], server
    finally:
        server.kill()
        server.wait()
        subprocess.run(["umount", "--lazy", str(folders["share"])], check=True)


def test_a_share_that_disappears_loses_log_files_and_the_job_succeeds(
    namespace: Namespace, unsteady: tuple[Path, subprocess.Popen[bytes]]
) -> None:
    share, server = unsteady
    volumes, mounts = volume(namespace, share)
    words = f"echo before; {HELD}; echo after; echo the end"
    namespace.apply(namespace.job("gone", words, logs={"pathPrefix": "/data"}, volumes=volumes, volumeMounts=mounts))
    wait_for("the log file", lambda: [f for f in share.rglob("stdout.txt") if "before" in f.read_text()])
    server.kill()
    server.wait()
    namespace.release("gone-worker-0")
    namespace.wait_phase("gone", "Succeeded")
    lines = namespace.log("gone-launcher").splitlines()
    assert [line for line in lines if line in ("before", "after", "the end")] == ["before", "after", "the end"]
    assert sum("stdout.txt: Transport endpoint is not connected" in line for line in lines) == 1
    assert not [line for line in lines if "cannot write to" in line]
