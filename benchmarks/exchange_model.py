"""How long the exchange of gradients takes on the networks of AKS's GPU sizes, from a model, and two measured points.

    python benchmarks/exchange_model.py [--ranks 8 64 512] [--backward-ms 100] [--bucket-mib 25]
    python benchmarks/exchange_model.py --measure [--rounds 5]

The model is a ring allreduce: 2 (N - 1) steps, each with a latency and with 1/N of the bytes. The exposed time is what
remains of it after the backward pass if the gradients become ready at a constant rate and are exchanged in buckets.

`--measure` compares the model with two ranks on an emulated network of 1 and of 10 Gbit/s (needs root, tc and Horovod).
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass

from emulated_network import PAYLOAD_SHARE, ROOT_MAY, emulated_link

GRADIENT_BYTES = {"ResNet-50": 4 * 25_583_592, "BERT-base": 4 * 109_482_240}  # float32
RANKS = (8, 16, 32, 64, 128, 256, 512)
ETHERNET_SHARE = 1448 / 1538  # payload of TCP in packets of 1500 bytes, with the gaps between packets
INFINIBAND_SHARE = 4096 / 4162
MEASURED_GBIT_PER_S = (1, 10)
DELAY_MS = 0.1


@dataclass(frozen=True, slots=True)
class Network:
    """A network between nodes. Latency in seconds of one step, speed in payload bytes per second."""

    name: str
    latency: float
    bytes_per_second: float


def network(name: str, gbit_per_s: float, *, latency_us: float, payload_share: float) -> Network:
    return Network(name, latency_us / 1e6, gbit_per_s * 1e9 / 8 * payload_share)


# The latencies are assumptions: of TCP between virtual machines, and of InfiniBand, each with the software.
NETWORKS = (
    network("8 Gbit/s", 8, latency_us=50, payload_share=ETHERNET_SHARE),
    network("32 Gbit/s", 32, latency_us=50, payload_share=ETHERNET_SHARE),
    network("80 Gbit/s", 80, latency_us=50, payload_share=ETHERNET_SHARE),
    network("InfiniBand 200 Gbit/s", 200, latency_us=5, payload_share=INFINIBAND_SHARE),
)


def exchange_seconds(size: float, ranks: int, link: Network) -> float:
    """The duration of a ring allreduce of this number of bytes."""
    return 2 * (ranks - 1) * (link.latency + size / ranks / link.bytes_per_second)


def exposed_seconds(size: float, ranks: int, link: Network, *, backward: float, bucket: float) -> float:
    """What remains of the exchange after a backward pass of this duration, in buckets of about this size.

    The first bucket is ready after its share of the backward pass, the last one at its end.
    """
    buckets = max(1, round(size / bucket))
    each = exchange_seconds(size / buckets, ranks, link)
    return max(each, buckets * each - backward * (buckets - 1) / buckets)


def print_table(ranks: list[int], backward: float, bucket: float) -> None:
    """Prints a row for each model and number of ranks."""
    print(f"\nMilliseconds of the exchange in one group / exposed after a backward pass of {backward * 1e3:.0f} ms "
          f"with buckets of {bucket / 2**20:.0f} MiB\n")  # fmt: skip
    print("| gradients | ranks | " + " | ".join(link.name for link in NETWORKS) + " |")
    print("| --- " * (2 + len(NETWORKS)) + "|")
    for model, size in GRADIENT_BYTES.items():
        for count in ranks:
            cells = [
                f"{1e3 * exchange_seconds(size, count, link):.0f} / "
                f"{1e3 * exposed_seconds(size, count, link, backward=backward, bucket=bucket):.0f}"
                for link in NETWORKS
            ]
            print(f"| {model}, {size / 1e6:.0f} MB | {count} | {' | '.join(cells)} |")


def run_rank(rounds: int) -> None:
    """One of two ranks of the measurement; rank 0 prints the seconds of an allreduce by its bytes."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    found = {}
    for size in (4, *GRADIENT_BYTES.values()):
        tensor, durations = tf.ones(size // 4), []
        for _ in range(rounds + 1):
            hvd.allreduce(tf.zeros(1), name="barrier")
            start = time.perf_counter()
            hvd.allreduce(tensor, name=f"tensor-{size}", op=hvd.Sum)
            durations.append(time.perf_counter() - start)
        found[size] = min(durations[1:])  # other work on the machine only adds time
    if hvd.rank() == 0:
        print(json.dumps(found), flush=True)


def measured_seconds(gbit_per_s: float | None, rounds: int) -> dict[int, float]:
    """The shortest time of an allreduce of two ranks on the emulated network, by its bytes."""
    with emulated_link(gbit_per_s, DELAY_MS) as link:
        if gbit_per_s is not None and not link.delay_ms:
            print("The kernel has no netem: packets are not delayed.")
        command = link.under_mpirun([sys.executable, __file__, "--rank", "--rounds", str(rounds)])
        done = subprocess.run(command, env=os.environ | ROOT_MAY, stdout=subprocess.PIPE, text=True, check=True)
        return {int(size): seconds for size, seconds in json.loads(done.stdout.splitlines()[-1]).items()}


def print_comparison(rounds: int) -> None:
    """Prints the measured and the modelled time of two ranks, and that on a link without a limit.

    The latter is the time that the processors take to copy and to add. It can overlap with the network or not.
    """
    unlimited = measured_seconds(None, rounds)
    rows: list[str] = []
    for gbit_per_s in MEASURED_GBIT_PER_S:
        found = measured_seconds(gbit_per_s, rounds)
        latency_us = found[4] / 2 * 1e6
        link = network(f"{gbit_per_s} Gbit/s", gbit_per_s, latency_us=latency_us, payload_share=PAYLOAD_SHARE)
        for model, size in GRADIENT_BYTES.items():
            total, processors = round(1e3 * found[size]), round(1e3 * unlimited[size])
            modelled = round(1e3 * exchange_seconds(size, 2, link))
            bounds = f"{max(modelled, processors)} to {modelled + processors} ms"
            rows.append(f"| {model} | {link.name} | {total} ms | {modelled} ms | {processors} ms | {bounds} |")
    print("\n| gradients | network | measured | model of the network | processors alone | from the larger to the sum |")
    print("| --- | --- | --- | --- | --- | --- |")
    print("\n".join(rows))


def main() -> None:
    """Prints the table, and the comparison if it is requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    parser.add_argument("--backward-ms", type=float, default=100, help="duration of the backward pass")
    parser.add_argument("--bucket-mib", type=float, default=25, help="size of a bucket of gradients")
    parser.add_argument("--measure", action="store_true", help="compare the model with an emulated network")
    parser.add_argument("--rounds", type=int, default=5, help="measured allreduces, of which the shortest counts")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        run_rank(given.rounds)
        return
    if given.measure:
        print_comparison(given.rounds)
    print_table(given.ranks, given.backward_ms / 1e3, given.bucket_mib * 2**20)


if __name__ == "__main__":
    main()
