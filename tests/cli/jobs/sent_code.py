"""The code that `hvj run` sends with a job, as its preparation unpacks it."""

import subprocess
import tempfile
from base64 import b64decode
from pathlib import Path

from cli.cluster_state import ClusterState
from support.api_client import Object

SENT = {".gitignore": "*.bin\n", "package/model.py": "layers = 3", "train.py": "import package.model"}


def code_of(cluster: ClusterState, job: Object) -> dict[str, str]:
    """The files that the job's preparation unpacks, by path."""
    (volume,) = (each for each in job["spec"]["volumes"] if "configMap" in each)
    path = f"/api/v1/namespaces/{cluster.namespace}/configmaps/{volume['configMap']['name']}"
    with tempfile.TemporaryDirectory() as directory:
        archive, code = Path(directory, "archive"), Path(directory, "code")
        archive.mkdir()
        for key, data in cluster.api.get(path)["binaryData"].items():
            (archive / key).write_bytes(b64decode(data))
        unpack, end, _ = job["spec"]["preparation"]["command"].partition("-C /job/code")
        return unpacked((unpack + end).replace("/job/archive", str(archive)), code)


def unpacked(command: str, directory: Path) -> dict[str, str]:
    """The files that a preparation makes in this directory instead of /job/code, by path."""
    directory.mkdir()
    text = command.replace("$$", "$").replace("/job/code", str(directory))  # as Kubernetes reads arguments
    subprocess.run(["sh", "-euc", text], check=True)
    found = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_text() for path in found}
