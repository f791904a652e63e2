"""The parts of the diagnostics. Each is independent of the others."""

import re
from collections.abc import Callable

from horovodjob_trainer.gpu_diagnostics.node import Node, ProgramError, nvidia_smi
from horovodjob_trainer.gpu_diagnostics.report import Table

Part = Callable[[Node], Table]
BENCHMARK = "horovodjob_trainer.synthetic_benchmark"
SMALL_MODEL = "horovodjob_trainer.gpu_diagnostics.probes:small_model"
OUT_OF_MEMORY = re.compile("ResourceExhausted|OOM when|out of memory", re.IGNORECASE)
TOTAL_RATE = re.compile(r"^Total images/s on \d+ ranks: ([0-9.]+)", re.MULTILINE)
BATCH_SIZES = (128, 64)
SMALL_BATCH_SIZES = (32, 16, 8)  # only if the others do not fit into the memory


class SkippedError(Exception):
    """The part does not apply to this node; the sentence gives the reason."""


def versions(node: Node) -> Table:
    """Versions of driver, CUDA, NCCL, TensorFlow, Keras and Horovod, and what Horovod was built with."""
    found, _ = node.run_probe("versions")
    query = "--query-gpu=name,driver_version,memory.total,compute_cap"
    gpus = tuple(
        ("GPU, driver, memory, compute capability", line) for line in nvidia_smi(query, "--format=csv,noheader")
    )
    problem = ""
    if node.has_gpus and not found["Horovod with NCCL"]:
        problem = "Horovod was built without NCCL"
    elif node.has_gpus and found["GPUs of TensorFlow"] != node.ranks:
        problem = f"TensorFlow has {found['GPUs of TensorFlow']} GPUs and nvidia-smi {node.ranks}"
    return Table(("what", "value"), (*gpus, *found.items()), problem)


def devices(node: Node) -> Table:
    """The GPU of each local rank, and its memory while all ranks compute."""
    found, _ = node.run_probe("devices", ranks=node.ranks)
    columns = ("rank", "local rank", "device", "memory growth", "memory in use by device, MiB")
    rows = tuple((*row, used) for row, used in zip(found["ranks"], found["memory"], strict=True))
    return Table(columns, rows, found["problem"])


def allreduce(node: Node) -> Table:
    """Bandwidth of hvd.allreduce on all GPUs of the node."""
    if node.has_gpus and node.ranks == 1:
        raise SkippedError("needs two GPUs")
    found, output = node.run_probe("allreduce", ranks=node.ranks, variables={"NCCL_DEBUG": "INFO"})
    transports = sorted(set(re.findall(r"\bNCCL INFO Channel .* via (\S+)", output)))
    rows = tuple((f"{size / (1 << 20):g}", f"{1000 * seconds:.2f}", *_bandwidths(size, seconds, node.ranks),
                  ", ".join(transports) or "no NCCL") for size, seconds in found["seconds"])  # fmt: skip
    problem = found["problem"]
    if node.has_gpus and not re.search(r"\bNCCL INFO\b", output):
        problem = "Horovod did not use NCCL: the log has no line of NCCL"
    return Table(("MiB", "ms", "algorithm GB/s", "bus GB/s", "transport"), rows, problem)


def _bandwidths(size: int, seconds: float, ranks: int) -> tuple[str, str]:
    """Algorithm and bus bandwidth in GB/s, as NVIDIA's nccl-tests define them."""
    algorithm = size / seconds / 1e9
    return f"{algorithm:.2f}", f"{algorithm * 2 * (ranks - 1) / ranks:.2f}"


def precision(node: Node) -> Table:
    """Training steps in float32, mixed_float16 and mixed_bfloat16: loss and speed."""
    found, _ = node.run_probe("precision")
    base = found[0]["seconds"]
    rows = tuple((each["policy"], f"{each['loss']:.3f}", f"{1000 * each['seconds']:.1f}",
                  f"{base / each['seconds']:.2f}") for each in found)  # fmt: skip
    unusable = [each["policy"] for each in found if not each["finite"]]
    problem = f"the loss is not finite with {', '.join(unusable)}" if unusable else ""
    return Table(("policy", "loss", "ms per step", "speed-up"), rows, problem)


def tf32(node: Node) -> Table:
    """A product of float32 matrices with and without TF32."""
    found, _ = node.run_probe("tf32")
    rows = tuple(
        (name, f"{1000 * each['seconds']:.2f}", f"{each['error']:.1e}") for name, each in found["modes"].items()
    )
    return Table(("TF32", "ms per product", "largest relative error"), rows, found["problem"])


def steps(node: Node) -> Table:
    """Training steps of ResNet-50 on one device, by batch size."""
    rows: list[tuple[object, ...]] = []
    measured = False
    for batch_size in (*BATCH_SIZES, *SMALL_BATCH_SIZES):
        if measured and batch_size in SMALL_BATCH_SIZES:
            break
        rate = _images_per_second(node, 1, batch_size)
        measured = measured or rate is not None
        rows.append((batch_size, "out of memory", "") if rate is None else
                    (batch_size, f"{1000 * batch_size / rate:.1f}", f"{rate:.1f}"))  # fmt: skip
    return Table(("batch size", "ms per step", "images/s"), tuple(rows), "" if measured else "no batch size fits")


def scaling(node: Node) -> Table:
    """Images/s of ResNet-50 on 1, 2, 4, ... and all devices of the node."""
    if node.ranks == 1:
        raise SkippedError("needs two GPUs")
    counts = [2**power for power in range(node.ranks.bit_length()) if 2**power < node.ranks] + [node.ranks]
    # The smallest batch that fits everywhere: the memory for NCCL comes on top of that of one GPU.
    for batch_size in (BATCH_SIZES[-1], *SMALL_BATCH_SIZES):
        rates = []
        for count in counts:
            rate = _images_per_second(node, count, batch_size)
            if rate is None:
                break
            rates.append(rate)
        if len(rates) == len(counts):
            rows = tuple((count, batch_size, f"{rate:.1f}", f"{100 * rate / count / rates[0]:.0f} %")
                         for count, rate in zip(counts, rates, strict=True))  # fmt: skip
            return Table(("ranks", "batch size per rank", "images/s", "efficiency"), rows)
    return Table(("ranks",), (), "no batch size fits")


def _images_per_second(node: Node, ranks: int, batch_size: int) -> float | None:
    """Images/s of all ranks, or None if the memory of a GPU is too small. Raises ProgramError."""
    model = ("--model", "ResNet50") if node.has_gpus else ("--model", SMALL_MODEL, "--image-size", "8")
    counts = ("5", "10", "3") if node.quick else ("10", "10", "10")
    warmup, batches, iterations = counts if node.has_gpus else ("1", "1", "2")
    arguments = (*model, "--batch-size", str(batch_size), "--num-warmup-batches", warmup,
                 "--num-batches-per-iter", batches, "--num-iters", iterations)  # fmt: skip
    try:
        output = node.run_module(ranks, BENCHMARK, *arguments)
    except ProgramError as error:
        if OUT_OF_MEMORY.search(error.output):
            return None
        raise
    found = TOTAL_RATE.search(output)
    if not found:
        raise ProgramError("the synthetic benchmark printed no result", output)
    return float(found[1])


PARTS: dict[str, Part] = {
    part.__name__: part for part in (versions, devices, allreduce, precision, tf32, steps, scaling)
}
