"""jobPreparation of Batch AI as the preparation of a HorovodJob, and what it and the image need of the pods."""

import re
import shlex
from collections.abc import Mapping
from typing import Any

from horovodjob.api.constants import PodSecurity
from horovodjob.batchai.images import is_trainer_image
from horovodjob.batchai.variables import report_absent, with_todays_names
from horovodjob.command_line import BASH, BASH_SYNTAX, shell_text
from horovodjob.document import Node

NEEDS_ROOT = re.compile(
    r"(^|[\s;&|(])(sudo|apt|apt-get|aptitude|dpkg|yum|dnf|apk|zypper|conda|ldconfig|chown|mount|systemctl|service)\s"
    r"|\bpip[0-9.]*\s+install\b(?!.*\s--user\b)|\bmake\s+install\b"
)
# Packages and scripts that install MPI or ssh; mpi4py is a library of ranks, and "compile" has no MPI.
FOR_LAUNCHER = re.compile(
    r"(?<![a-z])(lib)?(open|intel|mva)?[-_]?i?mpi(ch|run|exec)?(?!4py)(?![a-z])|openssh", re.IGNORECASE
)
RUNS_SCRIPT = re.compile(r"\.sh\b")
# Packages with content that the trainer image has.
PROVIDED = re.compile(
    r"(mpi-default-(dev|bin)|openmpi-bin|libopenmpi\S*|openssh-(client|server)|ssh|keras|horovod|tensorflow(-gpu)?|h5py)"
    r"(\[.*\])?([=<>~!].*)?"
)
INSTALLERS = {"apt": "install", "apt-get": "install", "pip": "install", "pip2": "install", "pip3": "install"}


def convert_preparation(
    properties: Node,
    variables: Mapping[str, bool],
    image: str,
    *,
    pod_security: PodSecurity | None = None,
    as_worker: bool | None = None,
) -> dict[str, Any]:
    """The preparation, the Pod Security level and the launcher's part; the last two arguments are the caller's choice.

    Omits the preparation if the image has everything that it installs.
    """
    node = properties.child("jobPreparation")
    command = node.required_text("commandLine") if node is not None else None
    if node is not None and command is not None:
        report_absent(command, variables, node.at("commandLine"), properties.notes)
        if is_trainer_image(image) and _installs_provided_only(command):
            properties.notes.warn(node.at("commandLine"), f"is omitted: {image} has the packages that it installs")
            command = None
    where = node.at("commandLine") if node is not None else ""
    return {
        **_preparation(command),
        **_pod_security(properties, where, command, image, pod_security),
        **_launcher(properties, where, command, as_worker),
    }


def _preparation(command: str | None) -> dict[str, Any]:
    if command is None:
        return {}
    text = with_todays_names(command)
    if BASH_SYNTAX.search(text):
        text = f"{BASH} -c {shlex.quote(text)}"
    return {"preparation": {"command": shell_text(text)}}


def _pod_security(
    properties: Node, where: str, command: str | None, image: str, level: PodSecurity | None
) -> dict[str, str]:
    """Baseline where the job needs root: Batch AI ran every container as root, and the trainer image needs none."""
    needs_root = command is not None and NEEDS_ROOT.search(command) is not None
    warn = properties.notes.warn
    if level is not None:
        if needs_root and level is PodSecurity.RESTRICTED:
            warn(where, f"needs root, which --pod-security {level} does not allow")
        return {"podSecurity": level.value}
    if not is_trainer_image(image):
        return {"podSecurity": PodSecurity.BASELINE.value}
    if needs_root:
        warn(
            where,
            "needs root, so the job has podSecurity: Baseline; the user of the trainer image is not root: build an "
            "image from it that has these packages",
        )
        return {"podSecurity": PodSecurity.BASELINE.value}
    if command is not None and RUNS_SCRIPT.search(command):
        warn(where, "if the script needs root, use an image that runs as root, and --pod-security Baseline")
    return {}


def _launcher(properties: Node, where: str, command: str | None, as_worker: bool | None) -> dict[str, Any]:
    """The launcher hosts ranks where it needs the preparation, which runs only beside ranks."""
    if as_worker is not None:
        return {"launcher": {"asWorker": as_worker}}
    if command is None or not FOR_LAUNCHER.search(command) or properties.has("customToolkitSettings"):
        return {}
    properties.notes.warn(
        where,
        "installs MPI or ssh, which the launcher needs too, so launcher.asWorker is true: the launcher runs the "
        "preparation and the ranks of one node; if the image has both, use --no-as-worker",
    )
    return {"launcher": {"asWorker": True}}


def _installs_provided_only(command: str) -> bool:
    """Whether it only installs packages that the trainer image has."""
    try:
        parts = [shlex.split(part) for part in re.split(r";|&&|\n", command) if part.strip()]
    except ValueError:
        return False
    return bool(parts) and all(map(_is_provided, parts))


def _is_provided(words: list[str]) -> bool:
    words = [word for word in words if word != "sudo" and not word.startswith("-")]
    if len(words) < 2 or words[0] not in INSTALLERS:
        return False
    if words[1] != INSTALLERS[words[0]]:
        return words[1] in ("update", "upgrade") and len(words) == 2
    return all(PROVIDED.fullmatch(package) for package in words[2:])
