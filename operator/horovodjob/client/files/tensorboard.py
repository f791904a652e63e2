"""TensorBoard for the event files of a job: in a pod of a job that runs, on this machine for one that has ended."""

import contextlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from horovodjob.api.constants import LABEL_ROLE, Role
from horovodjob.azurefiles.credentials import Options
from horovodjob.azurefiles.download import download_directory
from horovodjob.client.cluster import exec as pod_exec
from horovodjob.client.cluster.port_forward import forwarded_port
from horovodjob.client.errors import ClientError
from horovodjob.client.files.job_files import directory_in_containers, open_directory
from horovodjob.client.jobs import other_cluster
from horovodjob.client.jobs.wait_limit import WaitLimit
from horovodjob.client.messages import Display, message

Object = dict[str, Any]
LATE = "TensorBoard did not start"
READY = re.compile(r"TensorBoard \S+ at http://\S+?:(\d+)/")
# Its arguments are directories; the first one with event files is shown. It ends with its standard input.
SERVE = """
for directory; do
    [ -z "$(find -L "$directory" -name '*tfevents*' 2>/dev/null | head -n 1)" ] || break
    directory=
done
if [ -z "$directory" ]; then
    echo "there are no event files in $*" >&2
    exit 1
fi
exec 3<&0
tensorboard --logdir "$directory" --host 127.0.0.1 --port 0 &
pid=$!
{ cat <&3; kill "$pid"; } >/dev/null 2>&1 &
wait "$pid"
"""
# The variable names the directory of the log files, which a job without spec.logs has too.
DEFAULT_DIRECTORY = 'set -- "$AZ_BATCHAI_STDOUTERR_DIR" "$@"\n'


def rank_0_pod(job: Object) -> Object | None:
    """The pod of rank 0, which writes event files, if it runs; else any running worker."""
    pods = [pod for pod in other_cluster.pods(job) if pod.get("status", {}).get("phase") == "Running"]
    is_first = job["spec"].get("launcher", {}).get("asWorker", False)
    roles = (Role.LAUNCHER, Role.WORKER) if is_first else (Role.WORKER,)
    found = [pod for role in roles for pod in pods if pod["metadata"]["labels"][LABEL_ROLE] == role]
    return found[0] if found else None


def serve_in_pod(job: Object, pod: Object, directory_id: str | None, path: str, port: int, limit: WaitLimit) -> None:
    """Run TensorBoard in the pod and forward a local port to it, until Ctrl-C.

    Raises ClientError when it ends, TimedOut.
    """
    if directory_id is None:
        script = DEFAULT_DIRECTORY + SERVE
        ids = [output["id"] for output in job["spec"].get("outputs", [])]
        directories = [f"/{directory_in_containers(job, each).strip('/')}" for each in ids]
    else:
        script, directories = SERVE, [f"/{directory_in_containers(job, directory_id).strip('/')}/{path}"]
    command = ["sh", "-c", script, "tensorboard", *directories]
    with (
        pod_exec.server(pod, command, READY, lambda: limit.check_time(LATE), name="TensorBoard") as (found, wait),
        forwarded_port(pod, port, int(found[1])) as local,
    ):
        message(f"TensorBoard runs in pod {pod['metadata']['name']}: http://localhost:{local}/")
        wait()


def serve_here(
    job: Object, directory_id: str, path: str, options: Options, port: int, limit: WaitLimit, display: Display
) -> None:
    """Download the directory into a temporary one and run TensorBoard of this machine on it, until Ctrl-C.

    Raises ClientError, TimedOut.
    """
    program = shutil.which("tensorboard")
    if program is None:
        raise ClientError(
            "no pod of the job runs, and this machine has no tensorboard; install it with `pip install tensorboard`"
        )
    with tempfile.TemporaryDirectory(prefix="hvj-tensorboard-") as directory:
        with open_directory(job, directory_id, path, options, limit) as place, display.transfer() as transfer:

            def progress(path: str, done: int, total: int) -> None:
                limit.check_time(LATE)
                transfer.progress(path, done, total)

            download_directory(place.store, place.path, Path(directory), progress, transfer.plan)
        if not any("tfevents" in file.name for file in Path(directory).rglob("*")):
            raise ClientError(f"there are no event files in {path} of {directory_id}; name their place with -d and -p")
        with _process([program, "--logdir", directory, "--host", "127.0.0.1", "--port", str(port)]) as process:
            if code := process.wait():
                raise ClientError(f"{program} ended with exit code {code}")


@contextlib.contextmanager
def _process(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command) as process:
        try:
            yield process
        finally:
            process.terminate()
