"""Trains a step in a Python without the modules that are the arguments, as a script of a user does."""

import sys
from typing import Any

for module in [name for name in sys.modules if name.partition(".")[0] == "horovod"]:
    del sys.modules[module]  # the process has been forked from one with Horovod
missing: dict[str, Any] = dict.fromkeys(sys.argv[1:])
sys.modules.update(missing)  # None: an import fails, and find_spec finds nothing

import keras  # noqa: E402
import numpy as np  # noqa: E402

import horovodjob_trainer.hvd as hvd  # noqa: E402

hvd.init()
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse", jit_compile=False)
model.fit(
    np.full((4, 3), hvd.rank(), np.float32),
    np.ones((4, 1)),
    verbose=0,
    callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()],
)
print(f"TRAINED {hvd.rank()} of {hvd.size()}: {model.layers[0].bias.numpy().round(4)}", flush=True)
