"""The launcher's command of an MPIJob as the command of the ranks or of the launcher."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from horovodjob.command_line import SIMPLE_VALUE, parse_line
from horovodjob.document import Node
from horovodjob.mpijob.kubeflow import HOSTFILE
from horovodjob.mpirun import PARAMETER_VARIABLE, Mpirun, is_starter, parse_mpirun, take_parameter

# With them, mpirun of Open MPI 4 and 5 finds its hosts, as in an MPIJob.
HOSTFILE_ENV = {"OMPI_MCA_orte_default_hostfile": HOSTFILE, "PRTE_MCA_prte_default_hostfile": HOSTFILE}
SHELLS = ("sh", "bash", "dash", "ash")
LOGIN_PROGRAMS = ("runuser", "su", "gosu", "sudo")
# Parameters of Open MPI that contradict those of the operator, in a command line of a shell.
CONFLICTS = re.compile(
    r"""(?<!\S)--?(?:mca|prtemca)\s+((?:btl_tcp|oob_tcp)_if_exclude|plm_(?:rsh|ssh)_args)"""
    r"""\s+("[^"]*"|'[^']*'|\S+)[ \t]?"""
)
# A loop around one command, which only waits for the workers or starts the command again.
RETRY = re.compile(
    r"\s*(?:until|while\s+!)\s+(?P<command>[^;\n]+?)\s*[;\n]\s*do\s(?:\s*(?:sleep\s+[\w.]+|echo\s[^;\n]*|:)\s*[;\n])+"
    r"\s*done\s*;?\s*"
)
LOOP = re.compile(r"(?<!\S)(?:until|while)\s.*(?<!\S)done\b", re.DOTALL)
# The options of the ssh client of a job, in the launcher.
SSH_CONFIG = "/run/horovodjob/ssh_config"
SSH = re.compile(r"""(?<![\w./-])ssh(?=\s+(?:-\w|"?\$))""")
SSH_PORT = re.compile(rf"""(ssh -F {SSH_CONFIG}[^;&|\n()]*?)\s-p\s*(?:\d+|"?\$\{{?\w+\}}?"?)""")
OTHER_SSH = re.compile(r"(?<![\w./-])(?:ssh-keyscan|scp|sftp|pdsh|parallel-ssh)\s")
OTHER_HOSTFILE = re.compile(r"(?<!\S)--?(?:(?:default-)?hostfile|machinefile)[ =]+(?!\$\(HOROVODJOB_HOSTFILE\))(\S+)")
INSTALLS = re.compile(r"\b(?:apt-get|apt|yum|dnf|apk)\b[^;&|\n]*\b(?:install|add)\b[^;&|\n]*(?:ssh|mpi)")


@dataclass(slots=True)
class Launch:
    """Fields of the spec with the program."""

    spec: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    exports_all: bool = False
    parameters: frozenset[str] = frozenset()
    """Variables of the launcher that the operator sets itself there."""
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
    report_entrypoint(container)
    line = _line(container, where, words)
    parsed = _parsed(container, line) if line and is_starter(line[0]) else None
    parameters = _parameters(container) if implementation == "OpenMPI" else {}
    if parsed is not None:
        for name, value in parameters.items():
            take_parameter(name, value, parsed)
        return _ranks(container, where, parsed, implementation, frozenset(parameters))
    for name in parameters:
        container.notes.warn(
            container.at("env"), f"{name} is omitted: the operator sets it; an option -mca of mpirun takes precedence"
        )
    # Hydra gives the ranks all variables of the launcher, unless an option says otherwise.
    exports_all = implementation != "OpenMPI" and "genvnone" not in " ".join(words)
    command = _without_conflicts(container, where, words)
    _report_command(container, where, " ".join(words), words[0])
    variables = dict(HOSTFILE_ENV) if implementation == "OpenMPI" else {}
    return Launch({"launcherCommand": command}, variables, exports_all=exports_all, parameters=frozenset(parameters))


def _parsed(container: Node, line: Sequence[str]) -> Mpirun | None:
    """The parts of a command line; variables with numbers are replaced where an option needs a number."""
    variables = (each for each in container.items("env") if isinstance(each, Mapping))
    numbers = {f"$({each.get('name')})": value for each in variables if (value := str(each.get("value"))).isdecimal()}
    return parse_mpirun(line) or parse_mpirun([numbers.get(word, word) for word in line])


def report_entrypoint(container: Node) -> None:
    """Warns about arguments without a command, which Kubernetes gives to the entrypoint of the image."""
    if not container.items("command"):
        container.notes.warn(
            container.at("args"), "the entrypoint of the image does not run: what it prepares can be spec.preparation"
        )


def _parameters(container: Node) -> dict[str, str]:
    """Variables of the container that are parameters of Open MPI which the operator sets too."""
    variables = [each for each in container.items("env") if isinstance(each, Mapping)]
    return {
        each["name"]: str(each["value"])
        for each in variables
        if isinstance(each.get("name"), str) and PARAMETER_VARIABLE.fullmatch(each["name"]) and "value" in each
    }


def _ranks(container: Node, where: str, parsed: Mpirun, implementation: str, parameters: frozenset[str]) -> Launch:
    for option in parsed.dropped:
        container.notes.warn(where, f"the option {option} is omitted: HorovodJob chooses hosts, binding and interface")
    spec: dict[str, Any] = {"command": parsed.program}
    mpi: dict[str, Any] = {}
    if parsed.elastic:
        for option in (*parsed.args, *([f"--prefix {parsed.prefix}"] if parsed.prefix else [])):
            container.notes.warn(where, f"the option {option} is omitted: elastic jobs have no mpirun")
    else:
        mpi = {"prefix": parsed.prefix} if parsed.prefix else {}
        mpi |= {"args": parsed.args} if parsed.args else {}
    if mpi:
        spec["mpi"] = mpi
    exports_all = parsed.exports_all or (implementation != "OpenMPI" and not parsed.exports_none)
    return Launch(
        spec,
        parsed.env,
        parsed.exported,
        exports_all,
        parameters,
        parsed.processes,
        parsed.processes_per_worker,
        parsed.elastic,
        parsed.as_root,
    )


def _line(container: Node, where: str, words: Sequence[str]) -> list[str]:
    """The arguments, or those of the only command of a shell."""
    if not (len(words) == 3 and words[0].rpartition("/")[2] in SHELLS and re.fullmatch(r"-[a-z]*c", words[1])):
        return list(words)
    text = words[2].replace("\\\n", " ")
    loop = RETRY.fullmatch(text)
    text = re.sub(r"^\s*exec\s+", "", loop["command"] if loop else text)
    try:
        line = list(parse_line(text, _known_variables(container)).words or ())
    except ValueError:
        return []
    if loop and line and is_starter(line[0]) and _parsed(container, line) is not None:
        container.notes.warn(
            where,
            "the loop around mpirun is omitted: mpirun starts when all workers answer, and after a failure the job "
            "restarts up to runPolicy.backoffLimit",
        )
    return line


def _known_variables(container: Node) -> Mapping[str, bool]:
    """Variables that Kubernetes replaces in arguments, each with whether its value is one word."""
    known = {"HOROVODJOB_HOSTFILE": True}
    for variable in container.items("env"):
        if isinstance(variable, Mapping) and isinstance(name := variable.get("name"), str):
            value = variable.get("value")
            known[name] = isinstance(value, str) and SIMPLE_VALUE.fullmatch(value) is not None
    return known


def _without_conflicts(container: Node, where: str, words: Sequence[str]) -> list[str]:
    """The words without parameters that contradict the operator's, and with the keys of the job for ssh."""
    kept = list(words)
    for index in reversed(range(len(kept) - 2)):
        if match := CONFLICTS.fullmatch(" ".join((*kept[index : index + 2], "x"))):
            _report_conflict(container, where, match[1])
            del kept[index : index + 3]
    for index, word in enumerate(kept):
        for match in CONFLICTS.finditer(word):
            _report_conflict(container, where, match[1])
        kept[index] = CONFLICTS.sub("", word)
        if SSH.search(kept[index]):
            kept[index] = SSH_PORT.sub(r"\1", SSH.sub(f"ssh -F {SSH_CONFIG}", kept[index]))
            container.notes.warn(
                where, f"ssh has the option -F {SSH_CONFIG}, which has the keys and the port of the job"
            )
    return kept


def _report_conflict(container: Node, where: str, parameter: str) -> None:
    container.notes.warn(where, f"the option -mca {parameter} is omitted: the operator sets interfaces and ssh")


def _report_command(container: Node, where: str, text: str, program: str) -> None:
    """Warnings about a command that runs in the launcher."""
    warn = container.notes.warn
    if "horovodrun" in text:
        warn(
            where,
            "horovodrun uses an ssh of its own and does not find the workers: write the program into spec.command, or "
            "start it with mpirun",
        )
    elif not any(name in text for name in ("mpirun", "mpiexec")):
        warn(where, "runs once, in the launcher, as launcherCommand: it must start mpirun itself")
    else:
        warn(where, "runs in the launcher, as launcherCommand: what mpirun starts can be written into spec.command")
    if program.rpartition("/")[2] in LOGIN_PROGRAMS:
        warn(
            where,
            f"{program} can remove the variables with which mpirun finds the workers: remove it, and set the user with "
            "securityContext.runAsUser",
        )
    if hostfile := OTHER_HOSTFILE.search(text):
        warn(where, f"mpirun reads its hosts from {hostfile[1]}: they must be those of the file $HOROVODJOB_HOSTFILE")
    if OTHER_SSH.search(text):
        warn(where, f"programs that use ssh need the keys of the job: for scp and sftp, the option -F {SSH_CONFIG}")
    if LOOP.search(text):
        warn(
            where,
            "has a loop: one that waits for workers is not necessary, because they answer before the command starts; "
            "remove one that starts mpirun again, because the job restarts up to runPolicy.backoffLimit",
        )
    if INSTALLS.search(text):
        warn(where, "installs ssh or MPI: the image of the launcher must have both before the command starts")


def _words(container: Node, key: str) -> list[str]:
    words = []
    for index, word in enumerate(container.items(key)):
        if isinstance(word, str):
            words.append(word)
        else:
            container.notes.refuse(f"{container.at(key)}[{index}]", "must be a string: put it into quotes")
    return words
