"""`python -m horovodjob_trainer.gpu_diagnostics`: measure the GPUs of this node and print a report in Markdown."""

import argparse
import shlex
import sys
import time
from collections.abc import Sequence

from horovodjob_trainer.gpu_diagnostics.node import Node, ProgramError, visible_gpus
from horovodjob_trainer.gpu_diagnostics.parts import PARTS, Part, SkippedError
from horovodjob_trainer.gpu_diagnostics.report import Outcome, PartReport, report

CPU_RANKS = 2
NO_GPU_EXIT_CODE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts and print the report. Returns 0 if no part failed, 1 if one failed, 2 without a GPU."""
    options = _parser().parse_args(arguments)
    gpus = visible_gpus() if options.device == "gpu" else 0
    if options.device == "gpu" and not gpus:
        print("gpu_diagnostics: nvidia-smi lists no GPU here: run it on a node with GPUs, in a container that has them "
              "(docker run --gpus all, or worker.gpus of a HorovodJob)", file=sys.stderr)  # fmt: skip
        return NO_GPU_EXIT_CODE
    node = Node(
        has_gpus=gpus > 0,
        ranks=gpus or CPU_RANKS,
        quick=options.quick,
        timeout_seconds=options.timeout_seconds,
        python=tuple(shlex.split(options.python)),
    )
    parts = []
    for name in options.only or PARTS:
        print(f"gpu_diagnostics: {name} ...", file=sys.stderr, flush=True)
        parts.append(_run_part(name, PARTS[name], node))
        print(f"gpu_diagnostics: {name} {parts[-1].outcome.value}", file=sys.stderr, flush=True)
    print(report(node, parts), flush=True)
    return int(any(part.outcome is Outcome.FAILED for part in parts))


def _run_part(name: str, part: Part, node: Node) -> PartReport:
    start = time.monotonic()

    def part_report(outcome: Outcome, **details: object) -> PartReport:
        return PartReport(name, outcome, time.monotonic() - start, **details)  # type: ignore[arg-type]

    try:
        table = part(node)
    except SkippedError as reason:
        return part_report(Outcome.SKIPPED, message=str(reason))
    except ProgramError as error:
        return part_report(Outcome.FAILED, message=str(error), output=error.output)
    except Exception as error:  # whatever fails in one part, the others run
        return part_report(Outcome.FAILED, message=f"{type(error).__name__}: {error}")
    return part_report(Outcome.FAILED if table.problem else Outcome.PASSED, message=table.problem, table=table)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m horovodjob_trainer.gpu_diagnostics",
        description="Measures the GPUs of this node and prints a report in Markdown. Exit code 0: no part failed; "
        "1: a part failed; 2: no GPU.",
    )
    add = parser.add_argument
    add("--only", action="append", choices=tuple(PARTS), metavar="PART",
        help=f"run only this part; repeatable: {', '.join(PARTS)}")  # fmt: skip
    add("--quick", action="store_true", help="measure fewer steps and sizes")
    add("--device", choices=("gpu", "cpu"), default="gpu",
        help="cpu: test the diagnostics themselves, with two ranks and tiny sizes")  # fmt: skip
    add("--timeout-seconds", type=float, default=300.0, metavar="S", help="limit for each program (default 300)")
    add("--python", default=shlex.quote(sys.executable), metavar="COMMAND", help="command that starts Python in a rank")
    return parser


if __name__ == "__main__":
    sys.exit(main())
