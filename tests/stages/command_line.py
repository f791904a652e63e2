"""The commands of `python3 tests/stages`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from stages import times
from stages.catalog import ALL, DEMO, FUNCTIONS, GIVEN_CLUSTER, stage
from stages.commands import RAN_AGAIN, cluster_runs, environment
from stages.schedule import Schedule, Stage
from stages.settings import CACHE, LOGS, StageError, uses_given_cluster

USAGE = f"""The stages of `make test`, each on its own or all of them.

    python3 tests/stages all      every stage; with KUBECONFIG set, only the end-to-end tests, on that cluster
    python3 tests/stages builds   what `make demo` needs
    python3 tests/stages times    what each stage took, in the newest run with a cold and with a warm cache
    python3 tests/stages STAGE    one of {" ".join(FUNCTIONS)}

ONLY selects tests as `pytest -k` does. CLUSTER_NAME chooses among local clusters, which can run side by side.
"""
AT_MOST = 3


def main() -> int:
    """Run what the command line names."""
    wanted = sys.argv[1] if len(sys.argv) == 2 else ""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both signals run the clean-up
    try:
        match wanted:
            case "all":
                return run_given_cluster() if uses_given_cluster() else run_all()
            case "builds":
                return 0 if _schedule(DEMO).run() else 1
            case "times":
                print(times.table(times.newest_runs()))
                return 0
            case name if name in FUNCTIONS:
                FUNCTIONS[name]()
                return 0
    except (StageError, subprocess.CalledProcessError) as error:
        print(f"\n{wanted}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(USAGE, file=sys.stderr)
    return 2


def run_given_cluster() -> int:
    """The end-to-end tests on the cluster of KUBECONFIG."""
    schedule = _schedule(GIVEN_CLUSTER)
    started = time.monotonic()
    schedule.run()
    return _finish([schedule], started, times.processor_times(), cold=False, keep=False)


def run_all() -> int:
    """Run every stage. A cluster that the run started is stopped, except after a failure outside CI."""
    started, processors = time.monotonic(), times.processor_times()
    cold = not (CACHE / "binaries").exists() and not (CACHE / "images").exists()
    ran_before = cluster_runs()
    schedules = [_schedule(ALL)]
    passed = schedules[0].run()
    if not ran_before and (passed or os.environ.get("CI")):
        schedules.append(_schedule((stage("cluster-down"),)))
        schedules[1].run()
    return _finish(schedules, started, processors, cold=cold, keep=True)


def _schedule(stages: Sequence[Stage]) -> Schedule:
    return Schedule(stages, LOGS, at_most=AT_MOST, env=environment())


def _finish(
    schedules: list[Schedule], started: float, processors: tuple[float, float], *, cold: bool, keep: bool
) -> int:
    """Print the time and outcome of each stage, record them with `keep`, and return the exit status."""
    used, there = (now - before for now, before in zip(times.processor_times(), processors, strict=True))
    results = [result for schedule in schedules for result in schedule.results.values()]
    run = times.new_run(cold=cold, seconds=time.monotonic() - started, busy=used / (there or 1), results=results)
    if keep:
        times.append(run)
    print(f"\n{times.table([run])}", flush=True)
    for result in results:
        log = LOGS / f"{result.name}.log"
        again = [line for line in log.read_text().splitlines() if line.startswith(RAN_AGAIN)] if log.exists() else []
        print(*(f"{result.name}: {line}" for line in again), sep="\n", end="\n" if again else "", flush=True)
    return 0 if all(schedule.passed for schedule in schedules) else 1
