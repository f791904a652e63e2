"""The launcher's command of an MPIJob as the command of the ranks or of the launcher."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from horovodjob.command_line import parse_line
from horovodjob.document import Node
from horovodjob.mpirun import Mpirun, is_starter, parse_mpirun, without_interface_exclusions

HOSTFILE = "$(HOROVODJOB_HOSTFILE)"
KUBEFLOW_HOSTFILE = re.compile(r"/etc/mpi/hostfile\b|\$\{?OMPI_MCA_orte_default_hostfile\}?")
# With them, mpirun of Open MPI 4 and 5 finds its hosts, as in an MPIJob.
HOSTFILE_ENV = {"OMPI_MCA_orte_default_hostfile": HOSTFILE, "PRTE_MCA_prte_default_hostfile": HOSTFILE}
SHELLS = ("sh", "bash", "dash", "ash")


@dataclass(slots=True)
class Launch:
    """Fields of the spec with the program."""

    spec: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    processes: int | None = None
    slots: int | None = None
    elastic: dict[str, int] = field(default_factory=dict)
    as_root: bool = False


def launch(container: Node, implementation: str) -> Launch:
    """The program of the launcher's main container."""
    words = [*_words(container, "command"), *_words(container, "args")]
    if not words:
        container.notes.refuse(
            container.at("command"), "is missing: HorovodJob does not run an image's entrypoint, so add the command"
        )
        return Launch()
    where = container.at("command" if container.has("command") else "args")
    line = _shell_line(words)
    parsed = parse_mpirun(line) if line and is_starter(line[0]) else None
    if parsed is not None:
        return _ranks(container, where, parsed)
    kept = [KUBEFLOW_HOSTFILE.sub(HOSTFILE, word) for word in without_interface_exclusions(words)]
    if any("if_exclude" in word for word in kept):
        container.notes.warn(
            where, "remove if_exclude: Open MPI refuses it together with if_include, which HorovodJob sets"
        )
    text = " ".join(words)
    if "horovodrun" in text:
        container.notes.warn(
            where,
            "horovodrun uses an ssh of its own and does not find the workers: write the program into spec.command, or "
            "start it with mpirun",
        )
    elif not any(name in text for name in ("mpirun", "mpiexec")):
        container.notes.warn(where, "runs once, in the launcher, as launcherCommand: it must start mpirun itself")
    else:
        container.notes.warn(
            where, "runs in the launcher, as launcherCommand: what mpirun starts can be written into spec.command"
        )
    return Launch({"launcherCommand": kept}, dict(HOSTFILE_ENV) if implementation == "OpenMPI" else {})


def _ranks(container: Node, where: str, parsed: Mpirun) -> Launch:
    for option in parsed.dropped:
        container.notes.warn(where, f"the option {option} is omitted: HorovodJob chooses hosts, binding and interface")
    spec: dict[str, Any] = {"command": parsed.program}
    if parsed.args and parsed.elastic:
        container.notes.warn(where, f"the options {' '.join(parsed.args)} are omitted: elastic jobs have no mpirun")
    elif parsed.args:
        spec["mpi"] = {"args": parsed.args}
    return Launch(
        spec,
        parsed.env,
        parsed.exported,
        parsed.processes,
        parsed.processes_per_worker,
        parsed.elastic,
        parsed.as_root,
    )


def _shell_line(words: Sequence[str]) -> list[str]:
    """The arguments, or those of the only command of a shell."""
    if len(words) == 3 and words[0].rpartition("/")[2] in SHELLS and re.fullmatch(r"-[a-z]*c", words[1]):
        text = re.sub(r"^\s*exec\s+", "", words[2].replace("\\\n", " "))
        try:
            return list(parse_line(text, {}).words or ())
        except ValueError:
            return []
    return list(words)


def _words(container: Node, key: str) -> list[str]:
    words = []
    for index, word in enumerate(container.items(key)):
        if isinstance(word, str):
            words.append(word)
        else:
            container.notes.refuse(f"{container.at(key)}[{index}]", "must be a string: put it into quotes")
    return words
