"""Callbacks, tapes, saved models and errors of Horovod for Keras 3, on two ranks."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PROGRAM = Path(__file__).parent / "programs" / "layer_steps.py"
STEPS_PER_EPOCH = 8


@dataclass(frozen=True)
class Job:
    """A job that has ended: the results of each rank, the errors of invalid uses and the output."""

    directory: Path
    found: list[Any]
    errors: dict[str, str]
    stdout: str

    def equal(self, name: str) -> bool:
        return bool(np.array_equal(*(found[name] for found in self.found)))


@pytest.fixture(scope="module")
def job(run: Callable[..., Any], preloaded_python: list[str], tmp_path_factory: pytest.TempPathFactory) -> Job:
    directory = tmp_path_factory.mktemp("layer")
    ended = run(2, [*preloaded_python, str(PROGRAM), str(directory)])
    assert ended.code == 0, ended.stderr
    found = [np.load(directory / f"found-{rank}.npz") for rank in range(2)]
    return Job(directory, found, json.loads((directory / "errors.json").read_text()), ended.stdout)


def test_ranks_with_different_initial_weights_end_with_equal_weights_and_slots(job: Job) -> None:
    assert not job.equal("start")
    assert job.equal("end")
    assert job.equal("slots")


def test_each_rank_keeps_its_own_dropout_and_its_local_variables(job: Job) -> None:
    assert not job.equal("seeds")
    assert [found["local"][0] for found in job.found] == [1.0, 2.0]


def test_the_metrics_of_an_epoch_are_averaged_over_the_ranks(job: Job) -> None:
    assert not job.equal("own metrics")
    for found in job.found:
        own = [each["own metrics"] for each in job.found]
        np.testing.assert_allclose(found["averaged metrics"], np.mean(own, axis=0), rtol=1e-6)


def test_the_warm_up_increases_the_learning_rate_to_that_of_the_job(job: Job) -> None:
    rates = job.found[0]["rates"]
    warm = 2 * STEPS_PER_EPOCH
    np.testing.assert_allclose(rates[:warm], 0.01 + 0.01 * np.arange(1, warm + 1) / warm, rtol=1e-6)
    np.testing.assert_allclose(rates[warm:], 0.02, rtol=1e-6)
    np.testing.assert_allclose(job.found[0]["logged rates"], [0.015, 0.02, 0.02], rtol=1e-6)
    assert job.stdout.count("warm-up of the learning rate ended at 0.02") == 1


def test_the_velocity_is_corrected_with_the_learning_rate(job: Job) -> None:
    rates, velocities = job.found[0]["rates"], job.found[0]["velocities"]
    corrected, after = velocities[1:, 0], velocities[:-1, 1]
    np.testing.assert_allclose(corrected / after, rates[1:] / rates[:-1], rtol=1e-5)


def test_a_loaded_model_continues_with_its_slots_and_synchronized(job: Job) -> None:
    np.testing.assert_array_equal(job.found[1]["loaded slots"], job.found[0]["slots"])
    assert job.equal("loaded end")
    assert not np.array_equal(job.found[0]["loaded end"], job.found[0]["end"])


def test_a_custom_training_loop_equals_the_training_of_one_process(job: Job) -> None:
    assert job.equal("tape")
    np.testing.assert_allclose(job.found[0]["tape"], job.found[0]["tape alone"], atol=1e-5)


def test_of_a_custom_training_loop_only_the_code_of_the_user_is_translated_to_a_graph(job: Job) -> None:
    assert job.found[0]["translated"].tolist() == ["step"]


def test_local_layers_are_not_synchronized(job: Job) -> None:
    assert not job.equal("local layer")
    assert job.equal("shared layer")


def test_jit_compile_auto_disables_xla_for_a_distributed_optimizer(job: Job) -> None:
    assert job.found[0]["auto"].tolist() == [True, False]


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_a_saved_model_loads_without_horovod_and_this_package(
    job: Job, run: Callable[..., Any], preloaded_python: list[str], name: str
) -> None:
    code = f"""
import sys
sys.modules.update(dict.fromkeys(["horovod", "horovodjob_trainer"]))
import keras, numpy
model = keras.saving.load_model({str(job.directory / name)!r})
weights = numpy.concatenate([numpy.ravel(weight) for weight in model.get_weights()])
numpy.savez({str(job.directory / "plain.npz")!r}, weights=weights)
print(type(model.optimizer).__module__, type(model.optimizer).__name__)
if {name.endswith(".keras")}:  # Keras 3 cannot train on from an .h5 file, whoever wrote it
    assert int(model.optimizer.iterations) == {3 * STEPS_PER_EPOCH}
    model.fit(numpy.zeros((4, 6)), numpy.zeros(4), verbose=0)
"""
    done = run(1, [*preloaded_python, "-c", code])
    assert done.code == 0, done.stderr
    assert done.stdout == "keras.src.optimizers.sgd SGD\n"
    np.testing.assert_allclose(np.load(job.directory / "plain.npz")["weights"], job.found[0]["end"], rtol=1e-6)


ERRORS = {
    "no optimizer": "TypeError: DistributedOptimizer needs a Keras 3 optimizer, not str",
    "twice": "ValueError: this optimizer is already distributed",
    "inner twice": "ValueError: this optimizer is already distributed",
    "adasum": "ValueError: op must be hvd.Average or hvd.Sum",
    "predivided sum": "ValueError: gradient_predivide_factor needs op=hvd.Average",
    "groups": "ValueError: groups must be a positive integer or a list of lists of variables, not 0.5",
    "bucket size": "ValueError: bucket_bytes must be a positive integer, not 0",
    "groups and buckets": "ValueError: use either groups (or num_groups) or bucket_bytes, not both",
    "no passes": "ValueError: backward_passes_per_step must be at least 1, not 0",
    "passes of slots": "ValueError: backward_passes_per_step needs an optimizer that is not built yet",
    "passes twice": "ValueError: use either backward_passes_per_step or gradient_accumulation_steps of the optimizer",
    "ninth argument": "TypeError: DistributedOptimizer() takes",
    "jit_compile": "RuntimeError: XLA cannot compile the gradient allreduce of Horovod: call model.compile(",
    "tape": "TypeError: DistributedGradientTape needs a tf.GradientTape, not SGD",
    "load without optimizer": "ValueError: ",
    "legacy": "ValueError: legacy_opts=True needs Keras 2",
    "global variables": "NotImplementedError: Keras 3 has no list of all variables: call hvd.broadcast_variables(",
    "batch norm": "NotImplementedError: SyncBatchNormalization does not work with Keras 3",
    "best": "NotImplementedError: BestModelCheckpoint is not supported",
    "no rate": "ValueError: LearningRateWarmupCallback needs initial_lr",
    "unbuilt state": "ValueError: the model of a KerasState must be built",
    "uncompiled state": "ValueError: the model of a KerasState must be compiled",
    "tensorflow state": "NotImplementedError: TensorFlowState makes ranks that join wait indefinitely",
}


@pytest.mark.parametrize("use", ERRORS)
def test_an_unsupported_use_raises_an_error_with_its_name(job: Job, use: str) -> None:
    assert job.errors[use].startswith(ERRORS[use])


def test_every_invalid_use_is_tested(job: Job) -> None:
    assert set(job.errors) == set(ERRORS)
