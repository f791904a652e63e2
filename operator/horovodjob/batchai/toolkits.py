"""The program of each toolkit of Batch AI as the program of a HorovodJob."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from horovodjob.batchai.fields import SCRIPT, refusal, toolkits, warning
from horovodjob.batchai.variables import report_absent, with_todays_names
from horovodjob.command_line import Line, argument, parse_line, program, shell_command, shell_word
from horovodjob.document import Node
from horovodjob.mpirun import without_interface_exclusions

MOST_NODES = 10000
MOST_SLOTS = 256


@dataclass(frozen=True, slots=True)
class Context:
    """Input of the conversion of a toolkit: nodes, variables of the containers, default interpreter."""

    nodes: int
    variables: Mapping[str, bool]
    interpreter: str = "python"


@dataclass(frozen=True, slots=True)
class Program:
    """The fields of the spec with the program, and processes per worker if the toolkit sets them."""

    spec: dict[str, Any] = field(default_factory=dict)
    slots: int | None = None


def toolkit_program(properties: Node, job: Context) -> Program:
    """The program of the job's toolkit; records every reason for a refusal."""
    given = [key for key in toolkits() if properties.has(key)]
    if len(given) != 1:
        count = f"has {' and '.join(given)}" if given else "has no toolkit"
        properties.notes.refuse(properties.path, f"{count}: give exactly one, such as horovodSettings")
    programs = [PROGRAMS[key](node, job) for key in given if (node := properties.child(key)) is not None]
    return programs[0] if programs else Program()


def _horovod(node: Node, job: Context) -> Program:
    return Program(_script(node, job, "commandLineArgs", as_command=False), _slots(node, job.nodes))


def _python(node: Node, job: Context) -> Program:
    return Program(_script(node, job, "commandLineArgs", as_command=True), _slots(node, job.nodes))


def _custom_mpi(node: Node, job: Context) -> Program:
    command = _program(node, job.variables)
    if command and command[0].rpartition("/")[2] in ("mpirun", "mpiexec", "mpiexec.hydra", "horovodrun"):
        path = node.at("commandLine")
        node.notes.refuse(path, refusal(path))
    return Program({"command": command}, _slots(node, job.nodes))


def _custom_toolkit(node: Node, job: Context) -> Program:
    command = _program(node, job.variables)
    path = node.at("commandLine")
    kept = without_interface_exclusions(command)
    if kept != command:
        node.notes.warn(path, "mpirun's if_exclude is omitted: HorovodJob includes the pod's own interface instead")
    elif any("if_exclude" in word for word in command):
        node.notes.warn(path, "remove if_exclude: Open MPI refuses it together with if_include, which HorovodJob sets")
    # The master node ran the command and the preparation, and had its own ranks and GPUs.
    return Program({"launcherCommand": kept, "launcher": {"asWorker": True}})


def _pytorch(node: Node, job: Context) -> Program:
    backend = node.text("communicationBackend")
    path = node.at("communicationBackend")
    slots = _slots(node, job.nodes)
    if backend and backend.lower() != "mpi":
        node.notes.refuse(path, refusal(path))
        return Program()
    if backend is None and (job.nodes > 1 or slots > 1):
        node.notes.refuse(path, f"is missing: MPI is the only backend for several processes. {refusal(path)}")
    return Program(_script(node, job, "commandLineArgs", as_command=True), slots)


def _cntk(node: Node, job: Context) -> Program:
    language = (node.text("languageType") or "").lower()
    if language not in ("", "brainscript", "python"):
        node.notes.refuse(node.at("languageType"), "must be Python or BrainScript")
    for key in ("languageType", "configFilePath"):
        if (key == "languageType" and language == "brainscript") or (key == "configFilePath" and node.has(key)):
            node.notes.refuse(node.at(key), refusal(node.at(key)))
            return Program()
    return _python(node, job)


def _tensorflow(node: Node, job: Context) -> Program:
    """One worker is an ordinary script; parameter servers and several workers are refused."""
    servers = node.number("parameterServerCount", 0, MOST_NODES)
    workers = node.number("workerCount", 1, MOST_NODES * MOST_SLOTS)
    several = refusal(node.at("workerCount"))
    if servers:
        node.notes.refuse(node.at("parameterServerCount"), refusal(node.at("parameterServerCount")))
    if node.text(args := "parameterServerCommandLineArgs"):
        node.notes.refuse(node.at(args), refusal(node.at(args)))
    if (workers or 1) > 1:
        node.notes.refuse(node.at("workerCount"), several)
    if job.nodes > 1 and workers is None and not servers:
        node.notes.refuse(node.path, f"{job.nodes} nodes are several workers. {several}")
    elif job.nodes > 1 and workers == 1:
        node.notes.refuse(node.at("workerCount"), f"one worker uses one of {job.nodes} nodes: set nodeCount to 1")
    if servers or job.nodes > 1:
        return Program()
    if node.text(args := "workerCommandLineArgs"):
        node.notes.warn(node.at(args), warning(node.at(args)))
    return Program(_script(node, job, "masterCommandLineArgs", as_command=False), 1)


def _unsupported(node: Node, job: Context) -> Program:
    node.notes.refuse(node.path, refusal(node.at(SCRIPT)))
    return Program()


PROGRAMS: dict[str, Callable[[Node, Context], Program]] = {
    "horovodSettings": _horovod,
    "customMpiSettings": _custom_mpi,
    "customToolkitSettings": _custom_toolkit,
    "chainerSettings": _python,
    "cntkSettings": _cntk,
    "pyTorchSettings": _pytorch,
    "tensorFlowSettings": _tensorflow,
    "caffeSettings": _unsupported,
    "caffe2Settings": _unsupported,
}


def _slots(node: Node, nodes: int) -> int:
    """Processes per worker; Batch AI's default is one per node."""
    processes = node.number("processCount", 1, MOST_NODES * MOST_SLOTS)
    if processes is None:
        return 1
    slots, rest = divmod(processes, nodes)
    if rest:
        path = node.at("processCount")
        node.notes.refuse(path, refusal(path, processes=processes, nodes=nodes))
    elif slots > MOST_SLOTS:
        node.notes.refuse(node.at("processCount"), f"a worker has at most {MOST_SLOTS} processes: use more nodes")
    return slots


def _program(node: Node, variables: Mapping[str, bool]) -> list[str]:
    line = _command_text(node, "commandLine", variables, required=True)
    if not line.strip():
        return []
    try:
        return program(line, variables)
    except ValueError as error:
        node.notes.refuse(node.at("commandLine"), str(error))
        return []


def _command_text(node: Node, key: str, variables: Mapping[str, bool], *, required: bool = False) -> str:
    text = (node.required_text(key) if required else node.text(key)) or ""
    report_absent(text, variables, node.at(key), node.notes)
    if required and text and not text.strip():
        node.notes.refuse(node.at(key), "is empty: add a command")
    return with_todays_names(text)


def _script(node: Node, job: Context, args_key: str, *, as_command: bool) -> dict[str, Any]:
    """`interpreter path args` as a script or a command; as a shell command if only a shell can parse it."""
    path = _command_text(node, SCRIPT, job.variables, required=True).strip()
    start, args = _line(node, "pythonInterpreterPath", job.variables), _line(node, args_key, job.variables)
    words = argument(path, job.variables)
    if words is None or args.words is None or start.words is None:
        text = " ".join(part for part in (start.text or job.interpreter, shell_word(path), args.text) if part)
        return {"command": shell_command(text, is_simple=args.is_simple)}
    before = start.words or (job.interpreter,)
    if as_command or len(before) > 1:
        return {"command": [*before, words, *args.words]}
    script: dict[str, Any] = {"path": words, "interpreter": before[0]}
    return {"script": script | ({"args": list(args.words)} if args.words else {})}


def _line(node: Node, key: str, variables: Mapping[str, bool]) -> Line:
    text = _command_text(node, key, variables)
    try:
        return parse_line(text, variables)
    except ValueError as error:
        node.notes.refuse(node.at(key), str(error))
        return Line("", (), True)
