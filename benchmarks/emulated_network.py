"""Two network namespaces with a link of limited speed between them, and mpirun with one rank in each. Needs root.

Nothing of the machine's own network changes: the namespaces have one link, to each other, and no other route.
"""

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ADDRESSES = ("198.18.0.1", "198.18.0.2")  # of the range for benchmarks (RFC 2544)
MTU, FRAME_HEADER_BYTES, TCP_HEADER_BYTES = 1500, 14, 52
# The share of payload in the bytes that `tc` counts.
PAYLOAD_SHARE = (MTU - TCP_HEADER_BYTES) / (MTU + FRAME_HEADER_BYTES)
ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# Open MPI starts the second rank with this script in the place of ssh. A host name of its own makes it a second node.
AGENT = """#!/bin/sh
shift
exec nsenter --net=/run/netns/{namespace} unshare --uts sh -c 'hostname rank-1; exec sh -c "$0"' "$*"
"""
OPTIONS = ("-np", "2", "--host", ",".join(f"{address}:1" for address in ADDRESSES), "--bind-to", "none",
           "-mca", "mpi_yield_when_idle", "1", "-mca", "btl", "tcp,self", "-mca", "btl_tcp_if_include", "eth0",
           "-mca", "oob_tcp_if_include", "eth0")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Link:
    """A link between two namespaces; `delay_ms` is 0 if the kernel cannot delay packets."""

    namespaces: tuple[str, str]
    agent: Path
    delay_ms: float

    def under_mpirun(self, command: Sequence[str]) -> list[str]:
        """The command line that runs a rank of this command in each namespace."""
        inside = ["nsenter", f"--net=/run/netns/{self.namespaces[0]}"]
        return [*inside, "mpirun", *OPTIONS, "-mca", "plm_rsh_agent", str(self.agent), *command]


@contextmanager
def emulated_link(gbit_per_s: float | None, delay_ms: float = 0.0) -> Iterator[Link]:
    """A link of this speed in each direction, or without a limit, and this delay where the kernel has netem."""
    if os.geteuid() != 0 or not shutil.which("tc"):
        sys.exit("an emulated network needs root and tc (Debian's package iproute2)")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # deletes the namespaces
    first, second = (f"horovodjob-benchmark-{os.getpid()}-{number}" for number in (0, 1))
    try:
        for namespace in (first, second):
            _run("ip", "netns", "add", namespace)
            _run("ip", "-n", namespace, "link", "set", "lo", "up")
        _run("ip", "-n", first, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", second)
        applied_delay = delay_ms
        for namespace, address in zip((first, second), ADDRESSES, strict=True):
            _run("ip", "-n", namespace, "address", "add", f"{address}/30", "dev", "eth0")
            _run("ip", "-n", namespace, "link", "set", "eth0", "mtu", str(MTU), "up")
            if gbit_per_s is not None:
                applied_delay = _limit(namespace, gbit_per_s, delay_ms)
        with tempfile.TemporaryDirectory(prefix="horovodjob-benchmark-") as directory:
            agent = Path(directory) / "agent"
            agent.write_text(AGENT.format(namespace=second))
            agent.chmod(agent.stat().st_mode | stat.S_IXUSR)
            yield Link((first, second), agent, applied_delay if gbit_per_s is not None else 0.0)
    finally:
        for namespace in (first, second):  # the link is deleted with them
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)


def _limit(namespace: str, gbit_per_s: float, delay_ms: float) -> float:
    """Limit the speed of what a namespace sends. Returns the delay, 0 without netem."""
    queue = ("tc", "-n", namespace, "qdisc", "add", "dev", "eth0", "root")
    netem = (*queue, "netem", "rate", f"{gbit_per_s}gbit", "delay", f"{delay_ms}ms", "limit", "100000")
    if subprocess.run(netem, capture_output=True, check=False).returncode == 0:
        return delay_ms
    burst_bytes = max(128 << 10, int(gbit_per_s * 1e9 / 8 / 2000))  # half a millisecond, and a segment of 64 KiB
    _run(*queue, "tbf", "rate", f"{gbit_per_s}gbit", "burst", str(burst_bytes), "limit", str(32 << 20))
    return 0.0


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"`{' '.join(command)}` ended with: {done.stderr.strip()}")
