"""What the watch of a rank costs in a step: its marks in the graph, and its record of sections, exchanges and steps.

    python benchmarks/watch_cost.py [--rounds 7] [--steps 2000]

A graph that multiplies a small matrix runs with and without the two marks, in turns, and so does a loop with and
without the records of a step. The cost is the median of the differences, in relation to a step of 5 ms. Exit status: 0
if it is below 0.5 %, 1 if not.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

from horovodjob_trainer.watch import marker
from horovodjob_trainer.watch.activity import ACTIVITY, Place
from horovodjob_trainer.watch.sections import Section

STEP_SECONDS, TARGET = 0.005, 0.005


def seconds(call: Callable[[], Any], steps: int) -> float:
    """Processor seconds of a call: other processes of the machine do not change them."""
    begin = time.process_time()
    for _ in range(steps):
        call()
    return (time.process_time() - begin) / steps


def graph_step(*, is_marked: bool) -> Callable[[], Any]:
    """A step in a graph, with or without marks."""
    matrix = tf.Variable(tf.ones((64, 64)))

    def step() -> Any:
        gradient = tf.linalg.matmul(matrix, matrix) * 1e-6
        if is_marked:
            marker.mark(Place.EXCHANGE, after=[gradient])
        reduced = gradient + 1.0
        if is_marked:
            marker.mark(Place.COMPUTATION, after=[reduced])
        return tf.reduce_sum(reduced)

    compiled: Callable[[], Any] = tf.function(step)
    compiled()
    return compiled


def record() -> None:
    """What a step records: its batch, an exchange outside of the graph, and its end."""
    with ACTIVITY.section(Section.INPUT):
        pass
    with ACTIVITY.exchange():
        pass
    ACTIVITY.complete_step()


def main() -> int:
    """Measure, print and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    marker.create_marker()
    ACTIVITY.enter(Section.START)
    ACTIVITY.complete_step()
    marked, plain = graph_step(is_marked=True), graph_step(is_marked=False)
    marks, records = [], []
    for _ in range(options.rounds):
        marks.append(seconds(marked, options.steps) - seconds(plain, options.steps))
        records.append(seconds(record, options.steps) - seconds(lambda: None, options.steps))
    costs = {"marks in the graph": statistics.median(marks), "records": statistics.median(records)}
    total = sum(costs.values())
    for name, cost in costs.items():
        print(f"{name}: {cost * 1e6:.1f} us")
    share = total / STEP_SECONDS
    print(f"a step of {STEP_SECONDS * 1e3:.0f} ms: {100 * share:.2f} % (target: below {100 * TARGET:.1f} %)")
    return 0 if share < TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
