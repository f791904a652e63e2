"""jobPreparation of Batch AI as the preparation of a HorovodJob."""

import re
import shlex
from collections.abc import Mapping
from typing import Any

from horovodjob.batchai.images import is_trainer_image
from horovodjob.batchai.variables import report_absent, with_todays_names
from horovodjob.command_line import BASH, BASH_SYNTAX, shell_text
from horovodjob.document import Node

NEEDS_ROOT = re.compile(
    r"(^|[\s;&|(])(sudo|apt|apt-get|aptitude|dpkg|yum|dnf|apk|zypper|conda|ldconfig|chown|mount|systemctl|service)\s"
    r"|\bpip[0-9.]*\s+install\b(?!.*\s--user\b)|\bmake\s+install\b"
)
FOR_LAUNCHER = re.compile(r"mpi|openssh", re.IGNORECASE)
RUNS_SCRIPT = re.compile(r"\.sh\b")
# Packages with content that the trainer image has.
PROVIDED = re.compile(
    r"(mpi-default-(dev|bin)|openmpi-bin|libopenmpi\S*|openssh-(client|server)|ssh|keras|horovod|tensorflow(-gpu)?|h5py)"
    r"(\[.*\])?([=<>~!].*)?"
)
INSTALLERS = {"apt": "install", "apt-get": "install", "pip": "install", "pip2": "install", "pip3": "install"}


def convert_preparation(properties: Node, variables: Mapping[str, bool], image: str) -> dict[str, Any]:
    """The preparation with its Pod Security level; None if the image has everything that it installs."""
    node = properties.child("jobPreparation")
    command = node.required_text("commandLine") if node is not None else None
    if node is None or command is None:
        return {}
    where, notes = node.at("commandLine"), properties.notes
    report_absent(command, variables, where, notes)
    if is_trainer_image(image) and _installs_provided_only(command):
        notes.warn(where, f"is omitted: {image} has the packages that it installs")
        return {}
    text = with_todays_names(command)
    if BASH_SYNTAX.search(text):
        text = f"{BASH} -c {shlex.quote(text)}"
    result: dict[str, Any] = {"preparation": {"command": shell_text(text)}}
    if NEEDS_ROOT.search(command):
        result["podSecurity"] = "Baseline"
        notes.warn(
            where,
            "needs root, so the job has podSecurity: Baseline and needs an image that runs as root; it is not needed "
            "for MPI, Keras and Horovod with the trainer image (--image)",
        )
    elif RUNS_SCRIPT.search(command):
        notes.warn(where, "if the script needs root, set podSecurity: Baseline")
    if FOR_LAUNCHER.search(command) and not properties.has("customToolkitSettings"):
        notes.warn(
            where,
            "runs on the workers and not in the launcher, which needs mpirun and ssh too: use an image that has them, "
            "or set launcher.asWorker: true",
        )
    return result


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
