"""The synthetic benchmark on two ranks, with the documented timeline."""

import itertools
import re
import shlex
from pathlib import Path
from typing import Any

from stages.settings import ROOT
from support.tutorial.page import blocks

OWN = """
import keras


def small(shape, classes):
    return keras.Sequential([keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(classes)])
"""
# The command of docs/performance.md, and what makes it short.
(DOCUMENTED,) = blocks(ROOT / "docs" / "performance.md", "sh")
(TIMELINE,) = (block for block in blocks(ROOT / "docs" / "trainer-reference.md", "sh") if "HOROVOD_TIMELINE" in block)
FLAGS = {"--image-size": 4, "--batch-size": 2, "--num-warmup-batches": 1, "--num-batches-per-iter": 2, "--num-iters": 3}
NUMBER = r"([0-9.]+)"


def benchmark(python: list[str], model: str) -> list[str]:
    """The documented command of a rank; of an option that is given twice, the last one counts."""
    mpirun, documented = DOCUMENTED.split(" python ")
    assert mpirun == "mpirun -np 2"
    flags = [str(each) for flag in FLAGS.items() for each in flag]
    return [*python, *shlex.split(documented), "--model", model, *flags]


def test_two_ranks_exchange_gradients_in_each_batch_and_rank_0_prints_the_speed(
    run: Any, preloaded_python: list[str], tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    documented = dict(re.findall(r" -x (\w+)=(\S+)", TIMELINE))
    timeline = tmp_path / documented["HOROVOD_TIMELINE"]
    extra = documented | {"PYTHONPATH": str(tmp_path), "HOROVOD_TIMELINE": str(timeline)}
    flags = ("--precision", "mixed_float16", "--fp16-allreduce")
    ended = run(2, [*benchmark(preloaded_python, "own:small"), *flags], extra)
    assert ended.code == 0, ended.stderr
    iterations = re.findall(rf"^Iter #(\d): {NUMBER} images/s per rank$", ended.stdout, re.MULTILINE)
    assert [number for number, _ in iterations] == ["0", "1", "2"]
    (mean, deviation), (total, _) = re.findall(rf": {NUMBER} \+- {NUMBER}$", ended.stdout, re.MULTILINE)
    rates = [float(rate) for _, rate in iterations]
    assert min(rates) * 0.8 <= float(mean) <= max(rates) * 1.2  # the rates are those of rank 0 alone
    assert float(deviation) > 0
    assert abs(float(total) - 2 * float(mean)) <= 0.2
    events = timeline.read_text()
    tensors = re.findall(r'"pid": ([0-9]+), "args": \{"name": "\S*HorovodAllreduce\S*"', events)
    assert tensors
    for rank, tensor in itertools.product((0, 1), tensors):
        ticks = re.findall(rf'"name": "{rank}", "ts": [0-9]+, "pid": {tensor},', events)
        assert len(ticks) >= 1 + 2 * 3, "each rank has each gradient in each batch"


def test_an_unknown_model_ends_with_a_sentence_that_lists_the_models(run: Any, preloaded_python: list[str]) -> None:
    ended = run(1, benchmark(preloaded_python, "ResNet51"))
    assert ended.code == 2
    assert "--model ResNet51: keras.applications has no such model" in ended.stderr
    assert " ResNet50, " in ended.stderr
