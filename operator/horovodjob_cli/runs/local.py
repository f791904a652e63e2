"""A run on this machine: the same files and arguments under mpirun, so that an error costs no node."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from horovodjob_cli.errors import UsageError
from horovodjob_cli.jobs import manifests
from horovodjob_cli.jobs.manifests import Submission
from horovodjob_cli.runs.directory import code_files
from horovodjob_cli.runs.job_manifest import OUTPUT, script_of
from horovodjob_cli.runs.request import RunRequest

# Open MPI 4 and 5: more ranks than processors, and the user root, which containers have.
OPEN_MPI = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def run_here(request: RunRequest, output: Path | None) -> int:
    """The exit code of the script with the ranks of all nodes, in a copy of the directory that is deleted at the end.

    $AZ_BATCHAI_OUTPUT_output is `output`, or deleted as well. Raises UsageError.
    """
    if request.source:
        raise UsageError("--local runs a directory and --from a job of the cluster; use one of them")
    directory = request.workdir or Path()
    files = code_files(directory)
    script, interpreter = script_of(request, directory, files)
    spec = manifests.with_variables(Submission({"spec": {}}), request.env).job["spec"]
    variables = {each["name"]: each["value"] for each in spec.get("env", ())}
    processes = (request.nodes or (request.elastic or (1, 1))[1]) * max(1 if request.gpus is None else request.gpus, 1)
    words = ["mpirun", "-n", str(processes), interpreter, script, *request.args]
    if shutil.which("mpirun") is None:
        image = shlex.quote(request.image or "IMAGE")
        raise UsageError(
            "--local needs mpirun, which this machine lacks; install Open MPI, or use a container engine: "
            f'docker run --rm -v "$PWD":/job/code -w /job/code {image} {shlex.join(words)}'
        )
    with tempfile.TemporaryDirectory(prefix="hvj-run-") as temporary:
        code, packages, outputs = (Path(temporary) / name for name in ("code", "packages", "output"))
        code.mkdir()
        for file in files:
            target = code / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file.source, target)
        environment = os.environ | OPEN_MPI | variables
        if request.requirements is not None:
            install = ["python3", "-m", "pip", "install", "--quiet", "--target", str(packages)]
            if ended := _run([*install, "-r", request.requirements], code, environment):
                return ended
            environment["PYTHONPATH"] = str(packages)
        outputs = (output or outputs).absolute()
        outputs.mkdir(parents=True, exist_ok=True)
        return _run(words, code, environment | {f"AZ_BATCHAI_OUTPUT_{OUTPUT}": str(outputs)})


def _run(words: list[str], directory: Path, environment: dict[str, str]) -> int:
    sys.stdout.flush()  # before the lines of the program
    code = subprocess.run(words, cwd=directory, env=environment, check=False).returncode
    return code if code >= 0 else 128 - code
