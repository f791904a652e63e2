"""What a second rank brings, and what the exchange, checkpoints and reports of progress cost.

    python benchmarks/scaling.py [--rounds 5] [--epochs 6] [--job]
    python benchmarks/scaling.py --network [--rounds 5]
    python benchmarks/scaling.py --gpu --archive cifar-10-python.tar.gz [--target 0.7]

Trains the tutorial's network on the digits with one thread for each rank, in turns: one process alone, two that know
nothing of each other, two ranks under mpirun, two with the exchange over mpi4py instead of Horovod, two that also
write a checkpoint every ten steps, and two that also report their progress each second to files and to a server.
`--job` adds two ranks over TCP, and two as a HorovodJob, in one worker, in two, and in two that request no processors,
on the warm cluster that `make demo` leaves. A run's speed is the median of its epochs after the first, validation not
counted; each figure is the median of the rounds. Exit status: 0 if the targets are met, 1 if not.

`--network` runs the synthetic benchmark with ResNet-50 on two ranks that an emulated network of 1 and of 10 Gbit/s
connects: with all gradients in one group, which the ranks exchange after the backward pass, and with the default of
`hvd.DistributedOptimizer`. It needs root and tc.

`--gpu` trains CIFAR-10 with one rank for each GPU until the validation accuracy reaches the target.
"""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

EFFICIENT, OVERHEAD = 0.94, 0.05  # targets: of two ranks against twice one; of each addition
SILENT = ("--log-seconds", "1e9", "--tensorboard", "none")
CHECKPOINT_STEPS = 10
MPI = ("--bind-to", "none", "-mca", "mpi_yield_when_idle", "1", "-mca",
       "btl_tcp_if_include", "lo", "-mca", "oob_tcp_if_include", "lo", "--oversubscribe")  # fmt: skip
ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
TCP = ("-mca", "btl", "tcp,self")  # what ranks of different pods use
NAMESPACE = "benchmark-scaling"
NETWORKS_GBIT_PER_S = (10, 1)
DELAY_MS = 0.1  # where the kernel can delay packets
# A step on one core takes half a second to a second, the exchange at 1 Gbit/s nine tenths of a second.
SYNTHETIC = ("--model", "ResNet50", "--image-size", "64", "--batch-size", "16", "--threads", "1",
             "--num-warmup-batches", "2", "--num-batches-per-iter", "2", "--num-iters", "3")  # fmt: skip
GROUPS = {"one group": ("--groups", "1"), "default": ()}
CPU_REQUEST = 700  # thousandths of a core for each rank: two and the local cluster's own pods fit on two cores


def trainer(directory: str, epochs: int, *more: str) -> list[str]:
    """The command line of a rank."""
    flags = ("--dataset", "digits", "--threads", "1", "--epochs", str(epochs), "--dir", directory)
    return [sys.executable, "-m", "horovodjob_trainer", *flags, *more]


def temporary() -> str:
    return tempfile.mkdtemp(prefix="horovodjob-scaling-")


def under_mpirun(ranks: int, command: Sequence[str], *more: str) -> list[str]:
    return ["mpirun", "-np", str(ranks), *MPI, *more, *command]


def speed(output: str) -> float:
    """Images per second of all ranks: the median of the epochs after the first."""
    epochs = re.findall(r"^Epoch \d+/\d+ (\d+)/\1 .* (\d+) images/s$", output, re.MULTILINE)
    rates = [float(rate) for _, rate in epochs]
    if len(rates) < 2:
        sys.exit(f"a run did not train:\n{output}")
    return statistics.median(rates[1:])


def measured(commands: Sequence[Sequence[str]], extra: dict[str, str] | None = None) -> float:
    """Runs the commands at once; the sum of their speeds."""
    environment = os.environ | ROOT_MAY | (extra or {})
    running = [subprocess.Popen(c, stdout=subprocess.PIPE, text=True, env=environment) for c in commands]
    outputs = [process.communicate()[0] for process in running]
    return sum(speed(output) for output in outputs)


@contextmanager
def listener() -> Iterator[dict[str, str]]:
    """A server that takes reports, and the environment that makes rank 0 send them."""

    class Take(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Take)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.NamedTemporaryFile("w") as token:
        token.write("token")
        token.flush()
        url = f"http://127.0.0.1:{server.server_port}/"
        yield {"HOROVODJOB_PROGRESS_URL": url, "HOROVODJOB_PROGRESS_TOKEN_FILE": token.name}
    server.shutdown()


def ways(epochs: int, reporting: dict[str, str]) -> dict[str, Callable[[], float]]:
    """Every way to train, by its name."""

    def fresh(*more: str, ranks: int = 1) -> list[str]:
        return trainer(temporary(), ranks * epochs, *more)  # the same number of steps

    saving = ("--checkpoint-steps", str(CHECKPOINT_STEPS), "--keep-checkpoints", "1")
    return {
        "one": lambda: measured([fresh(*SILENT)]),
        "apart": lambda: measured([fresh(*SILENT), fresh(*SILENT)]),
        "together": lambda: measured([under_mpirun(2, fresh(*SILENT, ranks=2))]),
        "mpi4py": lambda: measured([under_mpirun(2, fresh(*SILENT, ranks=2))], {"HOROVODJOB_EXCHANGE": "mpi4py"}),
        "checkpoints": lambda: measured([under_mpirun(2, fresh(*SILENT, *saving, ranks=2))]),
        "progress": lambda: measured([under_mpirun(2, fresh("--log-seconds", "1", ranks=2))], reporting),
    }


def as_job(epochs: int, workers: int, cpu_request: int = CPU_REQUEST) -> float:
    """Two ranks in one pod or in two; each pod requests processors for its ranks, unless the request is 0."""
    from cluster_client import Watch, apply, kubectl, trainer_image

    slots = 2 // workers
    spec = {
        "image": trainer_image(),
        "worker": {
            "replicas": workers,
            "slots": slots,
            "gpus": 0,
            "resources": {"requests": {"cpu": f"{cpu_request * slots}m"} if cpu_request else {}},
        },
        "command": ["python3", *trainer("/tmp/out", 2 * epochs, *SILENT)[1:]],
        "runPolicy": {"backoffLimit": 0},
    }
    metadata = {"name": "job", "namespace": NAMESPACE}
    apply({"apiVersion": "horovodjob.dev/v1beta1", "kind": "HorovodJob", "metadata": metadata, "spec": spec})
    jobs = Watch("horovodjob", NAMESPACE)  # a process that asks again and again would be measured with the job
    ended = ("Succeeded", "Failed")
    jobs.when(lambda there: "job" in there and there["job"].get("status", {}).get("phase") in ended, 600)
    jobs.close()
    rate = speed(kubectl("logs", "-n", NAMESPACE, "job-launcher", "-c", "launcher"))
    kubectl("delete", "horovodjob", "-n", NAMESPACE, "job", "--wait=true")
    kubectl("wait", "pods", "-n", NAMESPACE, "--all", "--for=delete", "--timeout=120s")
    return rate


def verdict(is_met: bool, target: str) -> str:
    """What stands behind a figure that has a target."""
    return f"(target {target}: {'met' if is_met else 'missed'})"


def table(found: dict[str, list[float]]) -> bool:
    """Prints medians and ratios; whether the targets are met."""
    rates = {name: statistics.median(values) for name, values in found.items()}
    print(f"\n{'way':<12} {'images/s':>9}  {'slowest':>8} {'fastest':>8}")
    for name, values in found.items():
        print(f"{name:<12} {rates[name]:9.0f}  {min(values):8.0f} {max(values):8.0f}")
    efficiency = rates["together"] / (2 * rates["one"])
    costs = {
        "exchange (together against apart)": 1 - rates["together"] / rates["apart"],
        f"a checkpoint every {CHECKPOINT_STEPS} steps": 1 - rates["checkpoints"] / rates["together"],
        "progress each second": 1 - rates["progress"] / rates["together"],
    }
    if "job" in rates:
        costs["a HorovodJob of one worker with two slots"] = 1 - rates["job"] / rates["together"]
        costs["a HorovodJob of two workers, over TCP"] = 1 - rates["job of two"] / rates["tcp"]
    efficient = verdict(efficiency >= EFFICIENT, f"at least {EFFICIENT:.0%}")
    print(f"\nscaling efficiency of two ranks {efficiency:.1%} {efficient}")
    print(f"two processes that know nothing of each other {rates['apart'] / (2 * rates['one']):.1%}")
    print(f"the exchange over mpi4py against Horovod {rates['mpi4py'] / rates['together'] - 1:+.1%}")
    for name, cost in costs.items():
        print(f"cost of {name} {cost:+.1%} {verdict(cost <= OVERHEAD, f'at most {OVERHEAD:.0%}')}")
    if "job" in rates:
        print(f"two workers without a request against two with {rates['no request'] / rates['job of two'] - 1:+.1%}")
    return efficiency >= EFFICIENT and all(cost <= OVERHEAD for cost in costs.values())


def synthetic_rate(command: Sequence[str]) -> float:
    """Images per second of all ranks of a synthetic benchmark."""
    done = subprocess.run(command, env=os.environ | ROOT_MAY, stdout=subprocess.PIPE, text=True, check=False)
    found = re.search(r"^Total images/s on \d+ ranks: ([0-9.]+)", done.stdout, re.MULTILINE)
    if found is None:
        sys.exit(f"a benchmark ended with {done.returncode}:\n{done.stdout}")
    return float(found[1])


def on_networks(rounds: int) -> None:
    """Prints images per second of two ranks on each network with the gradients in one group and in the default."""
    from emulated_network import emulated_link

    program = [sys.executable, "-m", "horovodjob_trainer.synthetic_benchmark", *SYNTHETIC]
    found: dict[tuple[int, str], list[float]] = {}
    alone: list[float] = []
    for number in range(rounds):
        alone.append(synthetic_rate(program))
        print(f"round {number + 1}: one rank {alone[-1]:.1f} images/s", flush=True)
        for network in NETWORKS_GBIT_PER_S:
            for name, flags in GROUPS.items():
                with emulated_link(network, DELAY_MS) as link:
                    rate = synthetic_rate(link.under_mpirun([*program, *flags]))
                    delay = link.delay_ms
                found.setdefault((network, name), []).append(rate)
                print(
                    f"round {number + 1}: {network} Gbit/s, delay {delay:g} ms, {name}: {rate:.1f} images/s", flush=True
                )
    print(f"\none rank: {statistics.median(alone):.1f} images/s ({min(alone):.1f} to {max(alone):.1f})")
    print("\n| network | one group | default | default / one group |\n| --- | --- | --- | --- |")
    for network in NETWORKS_GBIT_PER_S:
        values = [found[network, name] for name in GROUPS]
        cells = [f"{statistics.median(each):.1f} ({min(each):.1f} to {max(each):.1f})" for each in values]
        ratio = statistics.median(values[1]) / statistics.median(values[0])
        print(f"| {network} Gbit/s | {' | '.join(cells)} | {ratio:.2f} |")


def on_gpus(archive: str | None, target: float, batch_size: int) -> bool:
    """Trains CIFAR-10 until the target; prints images per second and the time it took."""
    shown = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    gpus = len(shown.stdout.splitlines())
    if not gpus:
        sys.exit("nvidia-smi shows no GPU on this machine")
    with tempfile.TemporaryDirectory() as directory:
        source = ("--archive", archive) if archive else ()
        flags = ("--dataset", "cifar10", *source, "--batch-size", str(batch_size), "--dir", directory)
        rates = ("--epochs", "100", "--warmup-epochs", "1", "--precision", "mixed_float16")
        command = [sys.executable, "-m", "horovodjob_trainer", *flags, *rates]
        started = time.monotonic()
        process = subprocess.Popen(under_mpirun(gpus, command), env=os.environ | ROOT_MAY)
        best, speeds = 0.0, list[float]()
        log = Path(directory) / "progress.jsonl"
        while process.poll() is None and best < target:
            time.sleep(0.2)
            for line in log.read_text().splitlines()[len(speeds) :] if log.exists() else ():
                record = json.loads(line)
                speeds.append(record["samplesPerSecond"])
                best = max(best, record["metrics"].get("val_accuracy", 0.0))
        took = time.monotonic() - started
        process.send_signal(signal.SIGTERM)
        process.wait()
    print(f"{gpus} GPUs, batch {batch_size} each: {statistics.median(speeds or [0]):.0f} images/s, "
          f"validation accuracy {best:.3f} {took:.1f} s after the start")  # fmt: skip
    return best >= target


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--epochs", type=int, default=6, help="of one rank, the first not counted; two ranks train twice as many"
    )
    parser.add_argument("--job", action="store_true", help="also as a HorovodJob, on a warm cluster")
    parser.add_argument("--network", action="store_true", help="two ranks on emulated networks instead")
    parser.add_argument("--gpu", action="store_true", help="train CIFAR-10 on this machine's GPUs instead")
    parser.add_argument("--archive", help="of CIFAR-10, for --gpu; downloaded if not given")
    parser.add_argument("--target", type=float, default=0.7, help="validation accuracy at which --gpu ends")
    parser.add_argument("--batch-size", type=int, default=128, help="of a GPU")
    given = parser.parse_args()
    if given.gpu:
        sys.exit(0 if on_gpus(given.archive, given.target, given.batch_size) else 1)
    if given.network:
        on_networks(given.rounds)
        return
    found: dict[str, list[float]] = {}
    with listener() as reporting:
        turns = ways(given.epochs, reporting)
        if given.job:
            from cluster_client import fresh_namespace

            fresh_namespace(NAMESPACE)
            turns["tcp"] = lambda: measured([under_mpirun(2, trainer(temporary(), 2 * given.epochs, *SILENT), *TCP)])
            turns["job"] = lambda: as_job(given.epochs, 1)
            turns["job of two"] = lambda: as_job(given.epochs, 2)
            turns["no request"] = lambda: as_job(given.epochs, 2, cpu_request=0)
        for number in range(given.rounds):
            for name, way in turns.items():
                found.setdefault(name, []).append(way())
                print(f"round {number + 1}: {name} {found[name][-1]:.0f} images/s", flush=True)
    sys.exit(0 if table(found) else 1)


if __name__ == "__main__":
    main()
