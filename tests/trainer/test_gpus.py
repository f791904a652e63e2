"""GPUs of a node and the ranks on it. There is no GPU: the second test lets TensorFlow report one."""

from pathlib import Path
from typing import Any

import pytest

from horovodjob_trainer.errors import UsageError
from horovodjob_trainer.launch import check_gpus, gpus_of_container

NODE_WITH_ONE_GPU = """
import tensorflow as tf

config = tf.config
gpu = config.PhysicalDevice("/physical_device:GPU:0", "GPU")
devices, config.experimental.set_memory_growth = config.list_physical_devices, lambda device, enable: None
config.list_physical_devices = lambda kind=None: [gpu] if kind == "GPU" else devices(kind)
config.set_visible_devices = lambda devices, kind: None

from horovodjob_trainer.__main__ import main
main({flags!r})
"""


@pytest.mark.parametrize(("ranks", "gpus"), [(1, 0), (4, 0), (1, 1), (4, 4), (2, 4)])
def test_a_node_with_a_gpu_for_each_rank_or_with_none_is_accepted(ranks: int, gpus: int) -> None:
    check_gpus(ranks, gpus, "node")


def test_more_ranks_than_gpus_are_an_error_with_both_numbers_and_the_remedy() -> None:
    with pytest.raises(UsageError, match=r"^job-worker-0 has 4 visible GPUs for 8 ranks, .* set worker.slots to 4 or"):
        check_gpus(8, 4, "job-worker-0")


def test_gpus_of_a_pod_that_tensorflow_does_not_find_are_an_error_with_the_remedy(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    present = gpus_of_container({"HOROVODJOB_POD": "job-worker-0"}, tmp_path)
    with pytest.raises(
        UsageError, match=r"^job-worker-0 has \S+/nvidia0, \S+/nvidia1, and TensorFlow finds no GPU: use"
    ):
        check_gpus(1, 0, "job-worker-0", present)
    check_gpus(2, 2, "job-worker-0", present)


@pytest.mark.parametrize(
    "variables", [{}, *({"HOROVODJOB_POD": "w", "CUDA_VISIBLE_DEVICES": off} for off in ("", "-1"))]
)
def test_gpus_outside_of_a_job_and_hidden_ones_are_not_counted(variables: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    assert gpus_of_container(variables, tmp_path) == []


@pytest.mark.parametrize(
    ("gpus_of_each_rank", "model", "policy"),
    [
        ([[]], "resnet50", "float32"),  # a CPU
        ([[(7, 0)], [(9, 0)]], "resnet50", "mixed_float16"),
        ([[(8, 0)], [(9, 0)]], "resnet50", "mixed_bfloat16"),
        ([[(8, 0)], [(6, 1)]], "resnet50", "float32"),
        ([[(8, 0)], []], "resnet50", "float32"),
        ([[(9, 0)]], "own:network", "float32"),
    ],
)
def test_mixed_precision_is_the_default_of_the_networks_if_every_gpu_has_tensor_cores(
    gpus_of_each_rank: Any, model: str, policy: str
) -> None:
    from horovodjob_trainer.run.precision import default_policy

    assert default_policy(gpus_of_each_rank, model) == policy


def test_a_run_with_more_ranks_than_gpus_ends_at_the_start_on_all_ranks(
    run: Any, preloaded_python: list[str], tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(NODE_WITH_ONE_GPU.format(flags=["--dataset", "digits", "--dir", str(tmp_path / "out")]))
    ended = run(2, [*preloaded_python, str(script)], {"CUDA_VISIBLE_DEVICES": "0"})
    assert ended.code == 1
    (error,) = ended.errors
    assert "has 1 visible GPU for 2 ranks" in error
    assert not (tmp_path / "out").exists()


def test_a_rank_with_a_gpu_of_its_own_shares_it_with_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    from horovodjob_trainer import hvd
    from horovodjob_trainer.run import ranks

    seen = [("node-a", "0"), ("node-a", "1"), ("node-b", "0"), ("node-b", "0")]  # node-b has a variable for its pod
    monkeypatch.setattr(hvd, "allgather_object", lambda own: seen)
    for (host, device), count in zip(seen, (1, 1, 2, 2), strict=True):
        monkeypatch.setattr(ranks, "hostname", lambda host=host: host)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", device)
        assert ranks.ranks_with_same_gpus() == count


def test_an_evaluation_with_batches_in_the_memory_of_a_gpu_is_the_same_without_a_warning(capfd: Any) -> None:
    import keras

    from horovodjob_trainer import data, hvd
    from horovodjob_trainer.run.metrics.evaluation import Evaluation
    from horovodjob_trainer.run.pipeline import evaluation_batches
    from horovodjob_trainer.run.termination import Termination

    hvd.init()
    source = data.digits().test
    layers = [keras.layers.Flatten(), keras.layers.Dense(10, "softmax")]
    model = keras.Sequential([keras.Input(source.shape), *layers])
    model.compile(loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    batches = evaluation_batches(source, batch=32)
    first, second = (  # the second does not know how many there are
        Evaluation(model, source, given, lambda _, *batch: batch, batch=32, termination=Termination()).metrics(0)
        for given in (batches, batches.filter(lambda *_: True))
    )
    assert first == second
    assert "ran out of data" not in capfd.readouterr().err
