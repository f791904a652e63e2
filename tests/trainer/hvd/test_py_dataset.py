"""A PyDataset of Keras, whose workers are threads or processes of each rank."""

import json
from typing import Any

import pytest

PROGRAM = """
import json, pathlib, sys

import keras
import numpy as np

import horovodjob_trainer.hvd as hvd


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        random = np.random.default_rng(10 * hvd.rank() + index)
        return random.random((4, 3)).astype("float32"), random.random((4, 1)).astype("float32")


hvd.init()
found = {}
for workers in ("threads", "processes"):
    batches = Batches(workers=2, use_multiprocessing=workers == "processes")
    keras.utils.set_random_seed(hvd.rank())
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    fit = model.fit(batches, epochs=2, verbose=0, shuffle=False, callbacks=callbacks, validation_data=batches)
    found[workers] = hvd.allgather_object([fit.history, [weight.tolist() for weight in model.get_weights()]])
if hvd.rank() == 0:
    pathlib.Path(sys.argv[1]).write_text(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(run: Any, preloaded_python: list[str], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The history and the weights of each rank, with each kind of workers."""
    directory = tmp_path_factory.mktemp("batches")
    (directory / "program.py").write_text(PROGRAM)
    ended = run(2, [*preloaded_python, str(directory / "program.py"), str(directory / "found.json")])
    assert ended.code == 0, ended.stderr
    return json.loads((directory / "found.json").read_text())


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_ranks_train_together_on_batches_of_workers(found: Any, workers: str) -> None:
    first, second = found[workers]
    assert first == second
    assert first[0]["loss"][1] < first[0]["loss"][0]
