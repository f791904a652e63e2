"""What `hvj job list` costs with many jobs, and how long `hvj run` takes when the share has the directory already.

    PYTHONPATH=tests:. .venv/bin/python benchmarks/command_line.py [--jobs 300 5000] [--rounds 5]

A real API server has jobs of every phase, as `benchmarks/dashboard.py` creates them. Each measurement is a whole
process, from its start to its end: `hvj job list` as a table and as JSON, and `hvj run --detach --share`, at whose end
the job exists, of a directory with small files and one large file: with nothing to send, and with one changed file. The
share is on this machine, in a server that speaks the protocol of Azure Files. Exit status: 1 if the median of a run is
more than 2 s.
"""

import argparse
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dashboard import NAMESPACE, create_jobs
from small_files import SHARE, share_server, write_files

from cli.cluster_state import ClusterState
from localcluster.control_plane.standalone import ControlPlane
from support.api_client import Api, install_definition

HVJ = Path(sys.executable).with_name("hvj")
TARGET_SECONDS = 2.0
SMALL_FILES, LARGE_BYTES = 200, 210_000_000


def measured(arguments: list[str], directory: Path) -> tuple[float, float, float]:
    """Seconds from the start of `hvj` to its end, of them those of the processor, and its largest memory in MiB."""
    begin = time.monotonic()
    process = subprocess.Popen([HVJ, *arguments], cwd=directory, stdout=subprocess.DEVNULL)
    memory = 0.0
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
        # That of wait4 begins with the memory of this process.
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
        memory = int(found[1]) / 1024 if found else memory
        time.sleep(0.02)
    _, status, usage = ended
    if status:
        sys.exit(f"hvj {' '.join(arguments)} ended with {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - begin, usage.ru_utime + usage.ru_stime, memory


def measure_lists(cluster: ClusterState, counts: list[int], rounds: int, directory: Path) -> None:
    """Prints time and memory of `hvj job list`, after the jobs up to each number are there."""
    for count in sorted(counts):
        create_jobs(cluster, count, first=len(cluster.api.items(cluster.jobs)))
        for format_ in ("table", "json"):
            runs = [measured(["job", "list", "-w", NAMESPACE, "-o", format_], directory) for _ in range(rounds)]
            wall, processor, memory = map(statistics.median, zip(*runs, strict=True))
            what = f"job list -o {format_} of {count} jobs"
            print(f"{what}: {wall:.2f} s, {processor:.2f} s of a processor, {memory:.0f} MiB", flush=True)


def measure_runs(rounds: int, root: Path) -> float:
    """Prints the seconds of runs of one directory; the largest median of those after the first."""
    project = root / "project"
    write_files(project, SMALL_FILES)
    (project / "train.py").write_text("print()")
    (project / "data.bin").write_bytes(random.Random(2).randbytes(LARGE_BYTES))
    time.sleep(3)  # the hashes of files that were written within two seconds are not remembered
    with share_server(root / "account") as connection_string:
        os.environ["AZURE_STORAGE_CONNECTION_STRING"] = connection_string
        run = ["run", "--detach", "--quiet", "--image", "trainer:1", "-w", NAMESPACE, "--share", SHARE, "train.py"]
        print(f"first run, {LARGE_BYTES / 1e6:.0f} MB: {measured(run, project)[0]:.2f} s", flush=True)
        medians: list[float] = []
        for what in ("nothing to send", "one changed file"):
            runs = []
            for number in range(rounds):
                if what == "one changed file":
                    (project / "train.py").write_text(f"print({number})")
                runs.append(measured(run, project))
            times, used, _ = zip(*runs, strict=True)
            medians.append(statistics.median(times))
            spread = f"{min(times):.2f} to {max(times):.2f}, {statistics.median(used):.2f} s of a processor"
            print(f"run, {what}: {medians[-1]:.2f} s ({spread}), target at most {TARGET_SECONDS:.0f} s", flush=True)
    return max(medians)


def main() -> None:
    """Creates the jobs and measures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, nargs="*", default=[300, 5000])
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with ControlPlane(controllers=True) as control_plane, tempfile.TemporaryDirectory() as name:
        api = Api(control_plane.kubeconfig)
        install_definition(api)
        api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        os.environ |= {"KUBECONFIG": str(control_plane.kubeconfig), "XDG_CACHE_HOME": f"{name}/cache"}
        # As after an installation by pip, which compiles the packages.
        os.environ |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{name}/bytecode"}
        slowest = measure_runs(given.rounds, Path(name))
        measure_lists(ClusterState(api, NAMESPACE), given.jobs, given.rounds, Path(name))
    sys.exit(slowest > TARGET_SECONDS)


if __name__ == "__main__":
    main()
