"""Runs the ranks of an elastic job: Horovod's elastic driver, over the hosts that the operator lists.

    python3 elastic.py --min-ranks N --max-ranks N --timeout S --cooldown LO HI [--reset-limit N] -- PROGRAM...

Runs in the launcher, with the Python and the Horovod of the image, of any version. `horovodrun` uses the same driver,
but passes the whole environment in the command line of ssh, accepts unknown host keys, starts a Python process every
second to discover hosts, and always ends with exit code 1 after a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from typing import IO, Any

try:
    from horovod.runner.elastic.discovery import HostDiscovery, HostManager
    from horovod.runner.elastic.settings import ElasticSettings
    from horovod.runner.gloo_run import launch_gloo_elastic
    from horovod.runner.http.http_server import RendezvousServer
except ImportError as error:
    message = f"elastic ranks need Horovod in the image, for its python3: {error}"
    with open("/dev/termination-log", "w") as log:
        json.dump({"reason": "LauncherFailed", "message": message}, log)
    sys.exit(f"horovodjob: {message}")

# The kubelet updates this file within a second after the operator has published other hosts.
HOSTS_FILE = "/etc/horovodjob/hosts/hosts"
SSH = ["ssh", "-F", "/run/horovodjob/ssh_config"]
# Longer than a new rank takes to load TensorFlow; ranks wait as long for one that has disappeared.
GLOO_TIMEOUT = {"HOROVOD_GLOO_TIMEOUT_SECONDS": "60"}
WRITE_LOCK = threading.Lock()


def read_hosts(path: str) -> dict[str, int]:
    """Slots by host, in the order of the file."""
    with open(path) as file:
        lines = [line.split(" slots=") for line in file.read().splitlines()]
    return {host: int(slots) for host, slots in lines}


def ordered_hosts(available: set[str], before: list[str]) -> list[str]:
    """Earlier hosts first, because they have the state of the training; then new hosts in the order of the file."""
    listed = list(read_hosts(HOSTS_FILE))
    new = available.difference(before)
    return [host for host in before if host in available] + sorted(new, key=lambda host: _place(host, listed))


def _place(host: str, listed: list[str]) -> int:
    return listed.index(host) if host in listed else len(listed)


def copy_lines(source: IO[bytes], target: int) -> None:
    """Copies the output of a rank in whole lines, so that the lines of several ranks do not mix."""
    held = b""
    while text := os.read(source.fileno(), 65536):
        held += text
        end = max(held.rfind(b"\n"), held.rfind(b"\r")) + 1
        _write(target, held[:end])
        held = held[end:]
    _write(target, held)


def _write(target: int, text: bytes) -> None:
    with WRITE_LOCK:
        while text:
            text = text[os.write(target, text) :]


class Hosts(HostDiscovery):  # type: ignore[misc]
    """The listed hosts that have joined."""

    def __init__(self, joined: set[str]) -> None:
        self._joined, self._joining = joined, set[str]()

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Slots by host. A new host is included after it has joined."""
        listed = read_hosts(HOSTS_FILE)
        self._joined &= set(listed)
        for host in set(listed) - self._joined - self._joining:
            self._joining.add(host)
            threading.Thread(target=self._join, args=(host,), daemon=True).start()
        return {host: slots for host, slots in listed.items() if host in self._joined}

    def _join(self, host: str) -> None:
        with open(HOSTS_FILE) as hosts:
            done = subprocess.run([*SSH, host, "horovodjob-join"], stdin=hosts, stderr=subprocess.DEVNULL)
        if done.returncode == 0:
            say(f"host {host} joins")
            self._joined.add(host)
        else:
            time.sleep(1)
        self._joining.discard(host)


class Ranks:
    """The processes of the ranks, each in an ssh session."""

    def __init__(self) -> None:
        self.succeeded = False

    def run(self, command: str, slot: Any, events: list[threading.Event]) -> tuple[int, float]:
        """Runs one rank, and returns its exit code and end time. Ends it when one of the events is set."""
        say(f"rank {slot.rank} of {slot.size} starts on {slot.hostname}")
        # The session ends its rank when its input ends.
        session = [*SSH, slot.hostname, f"horovodjob-rank {command}"]
        pipe = subprocess.PIPE
        process = subprocess.Popen(session, stdin=pipe, stdout=pipe, stderr=pipe)
        copies = [
            threading.Thread(target=copy_lines, args=(process.stdout, sys.stdout.fileno())),
            threading.Thread(target=copy_lines, args=(process.stderr, sys.stderr.fileno())),
        ]
        for copy in copies:
            copy.start()
        while process.poll() is None:
            if any(event.is_set() for event in events):
                process.terminate()
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                continue
        for copy in copies:
            copy.join()
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        self.succeeded |= code == 0
        if slot.hostname in read_hosts(HOSTS_FILE):
            say(f"rank {slot.rank} (its number at the start) ended on {slot.hostname} with exit code {code}")
        else:
            say(f"rank {slot.rank} (its number at the start) left with its host {slot.hostname}")
        return code, time.time()


def say(message: str) -> None:
    """Writes a line to the log of the launcher."""
    print(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "horovodjob:", message, file=sys.stderr, flush=True)


def main() -> int:
    """Runs the program. Returns the exit code of the rank that ended the job."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--min-ranks", type=int, required=True)
    parser.add_argument("--max-ranks", type=int, required=True)
    parser.add_argument("--timeout", type=int, required=True)
    parser.add_argument("--cooldown", type=int, nargs=2, required=True)
    parser.add_argument("--reset-limit", type=int)
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    # Horovod orders new hosts as a set does, but ranks must follow the indices of the workers.
    HostManager.order_available_hosts = staticmethod(ordered_hosts)
    first, ranks = read_hosts(os.environ["HOROVODJOB_HOSTFILE"]), Ranks()
    settings = ElasticSettings(
        discovery=Hosts(set(first)),
        num_proc=min(sum(first.values()), options.max_ranks),
        min_num_proc=options.min_ranks,
        max_num_proc=options.max_ranks,
        elastic_timeout=options.timeout,
        reset_limit=options.reset_limit,
        cooldown_range=tuple(options.cooldown),
        verbose=0,
        run_func_mode=False,
    )
    interfaces = {os.environ["HOROVODJOB_INTERFACE"]}
    # Values of the user take precedence, and the ranks have them in their own environment.
    defaults = {name: value for name, value in GLOO_TIMEOUT.items() if name not in os.environ}
    try:
        launch_gloo_elastic(
            options.program, ranks.run, settings, defaults, lambda _: interfaces, RendezvousServer(0), sys.executable
        )
    except Exception as error:
        say(str(error))
        code = re.search(r"Exit code: (\d+)", str(error))
        return int(code[1]) if code and 0 < int(code[1]) < 256 else 1
    # Horovod also returns when it stops because of too few hosts.
    if not ranks.succeeded:
        say("Horovod stopped before any rank ended with exit code 0")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
