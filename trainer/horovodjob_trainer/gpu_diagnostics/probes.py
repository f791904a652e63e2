"""What the ranks run: `python -m horovodjob_trainer.gpu_diagnostics.probes PROBE DEVICE FILE`. Rank 0 writes JSON."""

import ctypes
import json
import math
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import horovod
import keras
import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.gpu_diagnostics.node import nvidia_smi
from horovodjob_trainer.launch import Launch, threads_per_rank, usable_cores
from horovodjob_trainer.run.ranks import configure_devices, wait_for_all_ranks

MIB = 1 << 20
POLICIES = ("float32", "mixed_float16", "mixed_bfloat16")
TF32_CAPABILITY = (8, 0)
# The mantissa of TF32 has 10 bits: rounding an element changes it by up to 5e-4, that of float32 by 6e-8.
TF32_ERROR = 1e-5
LEAST_MEMORY_MIB = 256


def versions(has_gpus: bool) -> dict[str, Any]:
    """Versions of the installed packages and of the libraries that they load."""
    build = tf.sysconfig.get_build_info()
    return {
        "TensorFlow": tf.__version__,
        "CUDA, cuDNN of TensorFlow": f"{build.get('cuda_version', 'none')}, {build.get('cudnn_version', 'none')}",
        "GPUs of TensorFlow": len(tf.config.list_physical_devices("GPU")),
        "Keras": keras.__version__,
        "Horovod": horovod.__version__,
        "Horovod with NCCL": _nccl_version() if hvd.nccl_built() else "",
        "Horovod with CUDA": hvd.cuda_built(),
        "Horovod with MPI": hvd.mpi_built(),
        "Horovod with Gloo": hvd.gloo_built(),
    }


def _nccl_version() -> str:
    """The version of the NCCL that Horovod has loaded, as a number such as 22105."""
    version = ctypes.c_int()
    with suppress(OSError):
        ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(version))
    return f"NCCL {version.value}" if version.value else "NCCL, version unknown"


def devices(has_gpus: bool) -> dict[str, Any]:
    """Device and memory growth of each rank, and the used memory of each GPU while all ranks hold a tensor."""
    held = tf.ones([LEAST_MEMORY_MIB * MIB // 4 if has_gpus else 4])
    mean = float(tf.reduce_mean(held))
    gpus = tf.config.get_visible_devices("GPU")
    name = gpus[0].name if gpus else f"CPU of local rank {hvd.local_rank()}"
    growth = all(tf.config.experimental.get_memory_growth(gpu) for gpu in gpus)
    wait_for_all_ranks()
    query = ("--query-gpu=memory.used,memory.total", "--format=csv,noheader,nounits")
    memory = [tuple(map(int, line.split(","))) for line in nvidia_smi(*query)] if has_gpus and hvd.rank() == 0 else []
    wait_for_all_ranks()
    ranks = hvd.allgather_object((hvd.rank(), hvd.local_rank(), name, growth))
    problem = ""
    if not math.isclose(mean, 1.0, rel_tol=1e-3):
        problem = f"the mean of ones is {mean}"
    elif has_gpus and "GPU" not in held.device:
        problem = f"the tensor is on {held.device}"
    elif len({row[2] for row in ranks}) < len(ranks):
        problem = "ranks share a device"
    elif not growth:
        problem = "memory growth is off"
    elif hvd.rank() == 0:
        problem = _memory_problem(memory, hvd.size()) if has_gpus else ""
    used = [f"{row[0]} of {row[1]}" for row in memory]
    return {"ranks": ranks, "memory": (used + [""] * len(ranks))[: len(ranks)], "problem": problem}


def _memory_problem(memory: list[tuple[int, ...]], ranks: int) -> str:
    in_use = sum(used >= LEAST_MEMORY_MIB for used, _ in memory)
    if in_use < ranks:
        return f"{ranks} ranks hold memory on {in_use} GPUs"
    if any(used > total / 2 for used, total in memory):
        return "a GPU has more than half of its memory in use, as without memory growth"
    return ""


def allreduce(has_gpus: bool) -> dict[str, Any]:
    """Seconds of a sum over all ranks by size in bytes, and whether the sum is correct."""
    sizes = [mib * MIB for mib in (1, 4, 16, 64, 256)] if has_gpus else [MIB // 64, MIB]
    repeats = 20 if has_gpus else 2
    expected = hvd.size() * (hvd.size() + 1) / 2
    seconds, problem = [], ""
    for size in sizes:
        tensor = tf.fill([size // 4], float(hvd.rank() + 1))

        @tf.function(autograph=False)  # type: ignore[untyped-decorator]
        def reduce(tensor: Any, size: int) -> Any:
            return hvd.allreduce(tensor, op=hvd.Sum, name=f"allreduce.{size}")

        total = reduce(tensor, size)
        if float(tf.reduce_min(total)) != expected or float(tf.reduce_max(total)) != expected:
            problem = f"the sum of {size} bytes is not {expected:g}"
        start = time.perf_counter()
        for _ in range(repeats):
            total = reduce(tensor, size)
        float(total[0])  # waits for the device
        seconds.append((size, (time.perf_counter() - start) / repeats))
    return {"seconds": seconds, "problem": problem}


def precision(has_gpus: bool) -> list[dict[str, Any]]:
    """Loss after some training steps and seconds per step, by dtype policy."""
    side, batch_size, count = (224, 64, 20) if has_gpus else (8, 2, 2)
    images = tf.random.uniform([batch_size, side, side, 3])
    labels = tf.random.uniform([batch_size], maxval=10, dtype=tf.int32)
    found = []
    for policy in POLICIES:
        keras.config.set_dtype_policy(policy)
        if has_gpus:
            options = {"weights": None, "classes": 10, "classifier_activation": None}
            model = keras.applications.ResNet50(input_shape=(side, side, 3), **options)
        else:
            model = small_model((side, side, 3), 10)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=keras.optimizers.SGD(0.01), loss=loss, jit_compile=False)
        model.optimizer.build(model.trainable_variables)
        value, seconds = _time_steps(model, images, labels, count)
        finite = math.isfinite(value)
        found.append({"policy": policy, "loss": value if finite else 0.0, "finite": finite, "seconds": seconds})
    return found


def _time_steps(model: Any, images: Any, labels: Any, count: int) -> tuple[float, float]:
    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def step() -> Any:
        return model.train_step((images, labels))["loss"]

    for _ in range(2):
        float(step())
    start = time.perf_counter()
    for _ in range(count):
        loss = step()
    return float(loss), (time.perf_counter() - start) / count


def tf32(has_gpus: bool) -> dict[str, Any]:
    """Time and error of a product of float32 matrices, with TF32 off and on."""
    side, repeats = (8192, 10) if has_gpus else (64, 2)
    left, right = (tf.random.stateless_uniform([side, side], seed=[0, seed]) for seed in (1, 2))
    exact = left.numpy()[:8].astype(np.float64) @ right.numpy().astype(np.float64)
    modes: dict[str, Any] = {}
    for name, enabled in (("off", False), ("on", True)):
        tf.config.experimental.enable_tensor_float_32_execution(enabled)
        error = float(np.max(np.abs(tf.matmul(left, right).numpy()[:8] / exact - 1)))
        start = time.perf_counter()
        for _ in range(repeats):
            product = tf.matmul(left, right)
        float(product[0, 0])
        modes[name] = {"seconds": (time.perf_counter() - start) / repeats, "error": error}
    return {"modes": modes, "problem": _tf32_problem(modes, has_gpus)}


def _tf32_problem(modes: dict[str, Any], has_gpus: bool) -> str:
    if not all(math.isfinite(mode["error"]) for mode in modes.values()) or modes["off"]["error"] > TF32_ERROR:
        return f"with TF32 off, the relative error of a product is {modes['off']['error']:.1e}"
    gpus = tf.config.get_visible_devices("GPU")
    if has_gpus and tf.config.experimental.get_device_details(gpus[0])["compute_capability"] >= TF32_CAPABILITY:
        return "" if modes["on"]["error"] != modes["off"]["error"] else "TF32 on does not change the product"
    return ""


def small_model(shape: tuple[int, ...], classes: int) -> Any:
    """A model of a few weights, for the test on CPUs."""
    return keras.Sequential([keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(classes, dtype="float32")])


PROBES: dict[str, Callable[[bool], Any]] = {
    probe.__name__: probe for probe in (versions, devices, allreduce, precision, tf32)
}


def main(name: str, device: str, path: str) -> int:
    """Run a probe on this rank. Returns the exit code."""
    try:
        launch = Launch.from_environment(os.environ)
        hvd.init()
        configure_devices(threads_per_rank(launch, usable_cores()), launch)
        result = PROBES[name](device == "gpu")
        if hvd.rank() == 0:
            Path(path).write_text(json.dumps(result))
        hvd.shutdown()
    except Exception as error:  # a sentence for the report, in one line
        print(f"gpu_diagnostics: {type(error).__name__}: {' '.join(str(error).split())}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
