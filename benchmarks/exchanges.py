"""The exchange of the gradients of a step over Horovod and over mpi4py, in turns in the same two processes.

    mpirun -np 2 python benchmarks/exchanges.py [--rounds 10]

Prints milliseconds, the median of the rounds, for the gradients of the tutorial's network and of ResNet-50 in the
default buckets of `hvd.DistributedOptimizer`, and whether the exchanges have the same bits.
"""

import argparse
import statistics
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from horovodjob_trainer import models
from horovodjob_trainer.hvd.buckets import bucket_bytes_from_environment, buckets_of_bytes
from horovodjob_trainer.hvd.exchange import over_horovod, over_mpi

EXCHANGES = {"horovod": over_horovod, "mpi4py": over_mpi}
FLOAT_BYTES = 4


def exchange_function(exchange: Any, shapes: list[tuple[int, ...]]) -> Any:
    """A compiled function that averages a gradient of each shape over the ranks."""
    sizes = [FLOAT_BYTES * int(np.prod(shape)) for shape in shapes]
    buckets = buckets_of_bytes(sizes, bucket_bytes_from_environment())

    @tf.function  # type: ignore[untyped-decorator]
    def averages(gradients: list[Any]) -> list[Any]:
        found = [
            exchange.grouped_allreduce([gradients[index] for index in bucket], name=f"{len(shapes)}_{number}",
                                       op=exchange.Average)
            for number, bucket in enumerate(buckets)
        ]  # fmt: skip
        return [each for group in found for each in group]

    return averages


def main() -> None:
    """Rank 0 prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    for exchange in EXCHANGES.values():
        exchange.init()
    networks = {"tutorial": models.tutorial_cnn((32, 32, 3), 10),
                "ResNet-50": keras.applications.ResNet50(weights=None)}  # fmt: skip
    for name, network in networks.items():
        shapes = [tuple(weight.shape) for weight in network.trainable_weights]
        random = np.random.default_rng(over_mpi.rank())
        gradients = [tf.constant(random.random(shape, np.float32)) for shape in shapes]
        functions = {kind: exchange_function(exchange, shapes) for kind, exchange in EXCHANGES.items()}
        results = [functions[kind](gradients) for kind in EXCHANGES]  # traces
        equal = all(np.array_equal(one, other) for one, other in zip(*results, strict=True))
        milliseconds: dict[str, list[float]] = {kind: [] for kind in EXCHANGES}
        for _ in range(given.rounds):
            for kind, function in functions.items():
                over_mpi.allgather_object(None)
                begin = time.perf_counter()
                function(gradients)[-1].numpy()
                milliseconds[kind].append(1e3 * (time.perf_counter() - begin))
        medians = {kind: statistics.median(each) for kind, each in milliseconds.items()}
        if over_mpi.rank() == 0:
            size = sum(int(np.prod(shape)) for shape in shapes) * FLOAT_BYTES / 2**20
            figures = ", ".join(f"{kind} {value:.1f} ms" for kind, value in medians.items())
            ratio = medians["mpi4py"] / medians["horovod"]
            print(f"{name}, {size:.1f} MiB: {figures}, ratio {ratio:.2f}, same bits: {equal}", flush=True)


if __name__ == "__main__":
    main()
