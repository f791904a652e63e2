"""Command lines of mpirun, mpiexec and horovodrun: their parts as fields of a HorovodJob."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

# Options that the operator sets itself or that every HorovodJob has in effect, with their number of values.
OPERATORS_OWN = {
    "allow-run-as-root": 0, "n": 1, "np": 1, "c": 1, "num-proc": 1, "hostfile": 1, "machinefile": 1, "f": 1,
    "host-file": 1, "default-hostfile": 1, "genvall": 0, "genvnone": 0, "genvlist": 1, "envall": 0, "envlist": 1,
    "bootstrap": 1, "launcher": 1, "launcher-exec": 1, "rmk": 1, "ppn": 1, "perhost": 1, "npernode": 1, "N": 1,
    "hosts": 1, "host": 1, "H": 1, "iface": 1, "use-mpi": 0, "mpi": 0, "ssh-port": 1, "p": 1, "ssh-identity-file": 1,
    "i": 1, "start-timeout": 1, "host-discovery-script": 1, "prefix": 1,
}  # fmt: skip
# Those with a value that HorovodJob replaces, with the values that mean the same there.
REPLACED = {
    **dict.fromkeys(("hostfile", "machinefile", "f", "host-file", "default-hostfile"),
                    ("/etc/mpi/hostfile", "$(HOROVODJOB_HOSTFILE)")),
    **dict.fromkeys(("launcher", "bootstrap"), ("ssh",)),
    **dict.fromkeys(("launcher-exec", "rmk", "iface", "ssh-port", "p", "ssh-identity-file", "i", "start-timeout"), ()),
    **dict.fromkeys(("host", "H", "hosts"), ()),
    "host-discovery-script": ("/etc/mpi/discover_hosts.sh",),
}  # fmt: skip
# Options for which the operator uses a fixed value; another value is reported.
CHANGED = {"bind-to": "none", "map-by": "slot", "wdir": "", "wd": "", "network-interface": "", "network-interfaces": "",
           "nics": "", "gloo": None, "use-gloo": None}  # fmt: skip
# Options of Open MPI, MPICH and Intel MPI that can stay, with their number of values.
KEPT = {
    "mca": 2, "gmca": 2, "tag-output": 0, "timestamp-output": 0, "display-map": 0, "display-allocation": 0, "v": 0,
    "verbose": 0, "q": 0, "quiet": 0, "report-bindings": 0, "oversubscribe": 0, "nooversubscribe": 0,
    "output-filename": 1, "prtemca": 2, "display": 1, "output": 1, "prepend-rank": 0, "l": 0, "print-rank-map": 0,
    "show-progress": 0, "tune": 1, "am": 1, "disable-auto-cleanup": 0, "enable-recovery": 0,
}  # fmt: skip
# Options of horovodrun without a counterpart, with their number of values: each is reported.
HOROVODRUN_DROPPED = {
    "verbose": 0, "disable-cache": 0, "v": 0, "blacklist-cooldown-range": 2, "elastic-timeout": 1, "log-level": 1,
    "timeline-filename": 1, "fusion-threshold-mb": 1, "cycle-time-ms": 1, "cache-capacity": 1, "autotune": 0,
    "autotune-log-file": 1, "gloo-timeout-seconds": 1, "log-with-timestamp": 0, "log-without-timestamp": 0,
    "output-filename": 1,
}  # fmt: skip
ELASTIC = {"min-np": "min", "min-num-proc": "min", "max-np": "max", "max-num-proc": "max", "slots": "slots",
           "slots-per-host": "slots", "reset-limit": "reset"}  # fmt: skip
SSH_PARAMETERS = re.compile(r"(plm_rsh|plm_ssh|orte_default_hostfile|orte_keep_fqdn|prte_keep_fqdn|routed)")
EXCLUSION = re.compile(r"(btl_tcp|oob_tcp)_if_exclude")
SSH_OPTIONS = re.compile(r"plm_(rsh|ssh)_args")
# Variables of Open MPI that the launcher's start script sets too; an option of mpirun takes precedence over them.
PARAMETER_VARIABLE = re.compile(
    r"(?:OMPI|PRTE)_MCA_((?:btl_tcp|oob_tcp|prte)_if_(?:in|ex)clude|plm_(?:rsh|ssh)_\w+|oob_tcp_keepalive_\w+|"
    r"(?:orte|prte)_(?:default_hostfile|keep_fqdn_hostnames)|mpi_yield_when_idle|pml|btl)"
)
PER_NODE = re.compile(r"ppr:([0-9]+):node")
# Directories that are in the PATH of every image.
STANDARD_DIRECTORIES = ("", "/bin", "/usr/bin", "/usr/local/bin")
STARTERS = ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "horovodrun")


@dataclass(slots=True)
class Mpirun:
    """One command line of mpirun or horovodrun, taken apart."""

    program: list[str] = field(default_factory=list)
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    elastic: dict[str, int] = field(default_factory=dict)
    processes: int | None = None
    processes_per_worker: int | None = None
    as_root: bool = False
    prefix: str | None = None
    exports_all: bool = False
    exports_none: bool = False
    dropped: list[str] = field(default_factory=list)


def is_starter(word: str) -> bool:
    """Whether the word is a program that starts ranks."""
    return word.rpartition("/")[2] in STARTERS


def parse_mpirun(words: Sequence[str]) -> Mpirun | None:
    """The parts of a command line that begins with mpirun; None where an option is not known, or for MPMD (`:`)."""
    parsed, rest = Mpirun(), list(words[1:])
    is_horovodrun = words[0].endswith("horovodrun")
    parsed.exports_all = is_horovodrun
    directory = words[0].rpartition("/")[0]
    if directory not in STANDARD_DIRECTORIES:
        if directory.startswith("/") and directory.endswith("/bin") and not is_horovodrun:
            parsed.prefix = directory.removesuffix("/bin")
        else:
            parsed.dropped.append(f"{directory}/")
    while rest and rest[0].startswith("-"):
        option, equals, value = rest.pop(0).partition("=")
        name = option.lstrip("-")
        if not name:
            break
        if equals:
            rest.insert(0, value)
        if not _take(name, option, rest, parsed, is_horovodrun=is_horovodrun):
            return None
    if not rest or ":" in rest:
        return None
    parsed.program = rest
    return parsed


def take_parameter(variable: str, value: str, parsed: Mpirun) -> bool:
    """Reads a variable of Open MPI that the operator sets itself as an option. Returns whether it is one."""
    match = PARAMETER_VARIABLE.fullmatch(variable)
    return match is not None and _take("mca", "-mca", [match[1], value], parsed, is_horovodrun=False)


def without_interface_exclusions(words: Sequence[str]) -> list[str]:
    """The words without `-mca btl_tcp_if_exclude X`, which Open MPI refuses beside the operator's if_include."""
    kept = list(words)
    for index in reversed(range(len(kept) - 2)):
        if kept[index].lstrip("-") == "mca" and EXCLUSION.fullmatch(kept[index + 1]):
            del kept[index : index + 3]
    return kept


def _take(name: str, option: str, rest: list[str], parsed: Mpirun, *, is_horovodrun: bool) -> bool:
    """Moves the values of one option out of `rest`. Returns whether the option is known and has them."""
    counts = _value_count(name, is_horovodrun=is_horovodrun)
    if counts is None or len(rest) < counts:
        return False
    values = [rest.pop(0) for _ in range(counts)]
    if name in ELASTIC:
        if not values[0].isdecimal():
            return False
        parsed.elastic[ELASTIC[name]] = int(values[0])
    elif name == "x":
        variable, equals, value = values[0].partition("=")
        if equals and take_parameter(variable, value, parsed):
            return True
        parsed.exported.add(variable)
        if equals:
            parsed.env[variable] = value
    elif name in ("genv", "env"):
        parsed.env[values[0]] = values[1]
    elif name == "mpi-args":
        parsed.args += values[0].split()
    elif name == "map-by" and (each := PER_NODE.fullmatch(values[0])):
        parsed.processes_per_worker = int(each[1])
    elif name in CHANGED:
        if not values or values[0] != CHANGED[name]:
            parsed.dropped.append(" ".join([option, *values]))
    elif name in OPERATORS_OWN:
        return _own(name, option, values, parsed)
    elif name in ("mca", "gmca", "prtemca") and (EXCLUSION.fullmatch(values[0]) or SSH_OPTIONS.fullmatch(values[0])):
        parsed.dropped.append(f"{option} {values[0]}")
    elif is_horovodrun:
        parsed.dropped.append(option)
    elif not (name in ("mca", "gmca", "prtemca") and SSH_PARAMETERS.match(values[0])):
        parsed.args += [option, *values]
    return True


def _value_count(name: str, *, is_horovodrun: bool) -> int | None:
    if name in ELASTIC or name in ("x", "mpi-args"):
        return 1
    if name in ("genv", "env"):
        return 2
    if name in CHANGED:
        return 0 if CHANGED[name] is None else 1
    if name in OPERATORS_OWN:
        return OPERATORS_OWN[name]
    return (HOROVODRUN_DROPPED if is_horovodrun else KEPT).get(name)


def _own(name: str, option: str, values: list[str], parsed: Mpirun) -> bool:
    """Remembers what can contradict the job's size."""
    parsed.as_root |= name == "allow-run-as-root"
    if name in ("n", "np", "c", "num-proc", "ppn", "perhost", "npernode", "N"):
        if not values[0].isdecimal():
            return False
        if name in ("n", "np", "c", "num-proc"):
            parsed.processes = int(values[0])
        else:
            parsed.processes_per_worker = int(values[0])
    elif name == "prefix":
        parsed.prefix = values[0]
    elif name in ("genvlist", "envlist"):
        parsed.exported.update(values[0].split(","))
    elif name == "genvnone":
        parsed.exports_none = True
    elif name in REPLACED and values[0] not in REPLACED[name]:
        parsed.dropped.append(" ".join([option, *values]))
    return True
