"""Values that could break out of scripts, paths and files, and volumes that are full."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from e2e.access import wait_for
from e2e.space import Space, volume

# A directory with what shells, printf and hostfiles take for something else. `$(NAME)` is replaced by Kubernetes.
ODD = "/data/a b/'q' \"d\" `touch oops` $HOME ${X} ;touch oops; %s * ~ # -rf é\ttab\nslots=9"
TELL = """
import json, os
names = ("OUTPUT_A", "STDOUTERR_DIR", "INPUT_I")
print(json.dumps({name: os.environ[f"AZ_BATCHAI_{name}"] for name in names}))
open(os.environ["AZ_BATCHAI_OUTPUT_A"] + "/made", "w").close()
"""


def test_odd_paths_are_only_paths(space: Space, shared_directory: Callable[[str], Path]) -> None:
    directory = shared_directory(space.name)
    volumes, mounts = volume(space, directory)
    folder = directory / ODD.removeprefix("/data/")
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    script = folder / "a script.py"
    script.write_text(TELL)
    job = space.job(
        "odd",
        script={"path": f"{ODD}/a script.py"},
        worker={"replicas": 2},
        preparation={"command": 'echo "prepared in $AZ_BATCHAI_STDOUTERR_DIR"'},
        inputs=[{"id": "I", "path": ODD}],
        outputs=[{"id": "A", "pathPrefix": ODD, "pathSuffix": "models 'x' $(unknown) `y`"}],
        logs={"pathPrefix": ODD},
        volumes=volumes,
        volumeMounts=mounts,
    )
    job["metadata"]["labels"] = {"horovodjob.dev/experiment": "A-b_c.D"}
    job["metadata"]["annotations"] = {"kueue.x-k8s.io/odd": ODD, "example.com/odd": ODD}
    space.apply(job)
    segment = space.wait_phase("odd", "Succeeded", seconds=90)["outputPathSegment"]
    own = folder / segment
    out = {
        "OUTPUT_A": f"{ODD}/{segment}/models 'x' $(unknown) `y`",
        "STDOUTERR_DIR": f"{ODD}/{segment}/stdouterr",
        "INPUT_I": ODD,
    }
    assert [json.loads(line) for line in space.output("odd")] == [out, out]
    assert (own / "models 'x' $(unknown) `y`" / "made").exists()
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


KINDS = (("execution", "log"), ("stdout-job_prep", "txt"), ("stderr-job_prep", "txt"))
# More than the volume holds, a line the ranks' whole output must not stop at.
FLOOD = 'i=0; while [ $i -lt 3000 ]; do i=$((i + 1)); echo "line $i $(printf %0900d 0)"; done; echo the end'


def test_a_full_volume_costs_log_files_and_never_the_job(space: Space) -> None:
    volumes = [{"name": "small", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]
    mounts = [{"name": "small", "mountPath": "/small"}]
    space.apply(space.job("full", FLOOD, logs={"pathPrefix": "/small"}, volumes=volumes, volumeMounts=mounts))
    space.wait_phase("full", "Succeeded", seconds=90)
    wait_for("the end of the log", lambda: "\nthe end\n" in space.log("full-launcher"))
    log = space.log("full-launcher")
    assert sum(line.startswith("line ") for line in log.splitlines()) == 3000
    assert log.count("No space left on device") == 1
