"""The operator under load, beside the floor: the same objects from a minimal client, on fake nodes.

    .venv/bin/python benchmarks/load.py [ROW ...] [--systems floor operator] [--rounds 3] [--scale 0.1]

Rows: burst-200, burst-1000, wide, mixed, history, idle, queued, queued-strict, queued-limited; all without a name. Each
system of a row has a control plane, a scheduler and kwok of its own, which this program starts and ends; kwok is built
at the first run. The environment variable MPI_OPERATOR adds the mpi-operator with this path. `floor+status` is the
floor with status writes and events.
Exit status: 0 if all targets are met, 1 if not.
"""

import argparse
import asyncio
import os
import statistics
import sys
from dataclasses import dataclass

import uvloop
from fake_cluster import FakeCluster
from load_rows import ROWS, Figures
from load_systems import SYSTEMS, SystemEnded


@dataclass(frozen=True, slots=True)
class Target:
    """A limit for a figure of the operator, or for its ratio to the floor's."""

    row: str
    figure: str
    limit: float
    at_least: bool = False
    of_floor: bool = False

    def verdict(self, measured: dict[str, Figures]) -> tuple[str, bool]:
        """A sentence, and whether the target is met."""
        wanted = f"{self.figure} {'at least' if self.at_least else 'at most'} {self.limit:g}"
        wanted += " of the floor" if self.of_floor else ""
        value = measured.get("operator", {}).get(self.figure)
        if value is not None and self.of_floor:
            base = measured.get("floor", {}).get(self.figure)
            value = value / base if base else None
        if value is None:
            return f"{wanted}: not measured, MISSED", False
        met = value >= self.limit if self.at_least else value <= self.limit
        return f"{wanted}: {value:.3g}, {'met' if met else 'MISSED'}", met


BURST = (
    ("jobs/s", 0.9, True, True),
    ("operator CPU a job, ms", 15, False, False),
    ("launcher done to Succeeded, p50, ms", 50, False, False),
    ("launcher done to Succeeded, p99, ms", 300, False, False),
    ("calls over the budget", 0, False, False),
)
TARGETS = (
    *(Target(row, *target) for row in ("burst-200", "burst-1000") for target in BURST),
    Target("wide", "all pods created, s", 1.05, of_floor=True),
    Target("wide", "all workers run, s", 1.05, of_floor=True),
    Target("mixed", "small jobs beside the big one to alone, p50", 2),
    Target("mixed", "small jobs beside the big one, p50, s", 1.3, of_floor=True),
    Target("mixed", "Leases lost", 0),
    Target("mixed", "healthz not answered within 1 s", 0),
    Target("history", "start to first new pod, s", 2),
    Target("history", "memory, peak, MB", 95),
    Target("history", "etcd, of the finished jobs, MB", 60),
    Target("queued", "queued: time to beside Kueue", 1.15),
    Target("queued", "calls over the budget", 0),
    Target("idle", "memory, MB", 75),
    Target("idle", "calls but Lease renewals", 0),
)


def measure(row: str, system: str, scale: float) -> Figures:
    """One row with one system, on a cluster of its own."""
    with FakeCluster() as cluster, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(ROWS[row].measure(SYSTEMS[system](cluster), scale))


def medians(rounds: list[Figures]) -> Figures:
    """The middle of each figure."""
    return {figure: statistics.median(one[figure] for one in rounds) for figure in rounds[0]} if rounds else {}


def run_row(row: str, systems: list[str], rounds: int, scale: float) -> dict[str, Figures]:
    """Figures of each system; the systems take turns."""
    found: dict[str, list[Figures]] = {system: [] for system in systems}
    for number in range(rounds):
        for system in systems:
            print(f"{row}, round {number + 1}: {system}", flush=True)
            try:
                found[system].append(measure(row, system, scale))
            except (SystemEnded, TimeoutError) as error:
                print(f"  {error or 'it did not end in time'}", flush=True)
    return {system: medians(figures) for system, figures in found.items()}


def table(row: str, measured: dict[str, Figures]) -> None:
    """Figures by system, with their ratio to the floor's."""
    systems = [system for system, figures in measured.items() if figures]
    print(f"\n{row:<48}" + "".join(f"{system:>24}" for system in systems))
    for figure in dict.fromkeys(figure for system in systems for figure in measured[system]):
        line = f"  {figure:<46}"
        for system in systems:
            value, base = measured[system].get(figure), measured.get("floor", {}).get(figure)
            shown = "-" if value is None else f"{value:.4g}"
            ratio = f" ({value / base:.2f})" if value is not None and base and system != "floor" else ""
            line += f"{shown + ratio:>24}"
        print(line.rstrip())


def main() -> int:
    """Prints tables and verdicts; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=["floor", "operator"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1, help="share of each row's jobs, to try it")
    options = parser.parse_args()
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"there is no row {sorted(unknown)[0]}; there are {', '.join(ROWS)}")
    extra = ["mpi-operator"] if "MPI_OPERATOR" in os.environ and "mpi-operator" not in options.systems else []
    met = True
    for row in options.rows or ROWS:
        systems = [system for system in [*options.systems, *extra] if system in ROWS[row].systems]
        measured = run_row(row, systems, options.rounds, options.scale)
        table(row, measured)
        for target in TARGETS:
            if target.row == row and "operator" in systems:
                sentence, kept = target.verdict(measured)
                met = met and kept
                print(f"  target: {sentence}", flush=True)
        print(flush=True)
    if options.scale != 1:
        print(f"with {options.scale:g} of the jobs, which the targets are not for")
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
