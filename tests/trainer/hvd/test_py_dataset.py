"""A PyDataset of Keras, whose workers are threads or processes of each rank."""

import json
from pathlib import Path
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
batches = Batches(workers=2, use_multiprocessing=sys.argv[1] == "processes")
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
history = model.fit(batches, epochs=2, verbose=0, shuffle=False, callbacks=callbacks, validation_data=batches).history
found = hvd.allgather_object([history, [weight.tolist() for weight in model.get_weights()]])
if hvd.rank() == 0:
    pathlib.Path(sys.argv[2]).write_text(json.dumps(found))
"""


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_ranks_train_together_on_batches_of_workers(
    run: Any, tmp_path: Path, preloaded_python: Any, workers: str
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    found = tmp_path / "found.json"
    ended = run(2, [*preloaded_python, str(tmp_path / "program.py"), workers, str(found)])
    assert ended.code == 0, ended.stderr
    first, second = json.loads(found.read_text())
    assert first == second
    assert first[0]["loss"][1] < first[0]["loss"][0]
