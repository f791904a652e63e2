"""Prints the sentence with which each wrong use of a run ends."""

import pathlib
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import horovodjob_trainer.hvd as hvd

directory = pathlib.Path(sys.argv[1])
inputs, outputs = np.zeros((20, 3), np.float32), np.zeros((20, 1), np.float32)
dataset = tf.data.Dataset.from_tensor_slices((inputs, outputs)).batch(5)


def network(width: int = 4) -> Any:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(width), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    return model


def attempt(
    name: str, data: Any = dataset, model: Any = None, path: str = "run", fit: Any = None, **options: Any
) -> None:
    epochs = list[int]()  # of this start: the history has also those of earlier ones
    try:
        run = hvd.RunCallback(directory / path, **options)
        counting = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: epochs.append(epoch))
        (model or network()).fit(data, verbose=0, callbacks=[run, counting], **(fit or {}))
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {error}", flush=True)
    else:
        print(f"{name}: {len(epochs)} epochs", flush=True)


attempt("no init")
hvd.init()
attempt("resume", resume="always")
attempt("first", fit={"epochs": 2}, settings={"rate": 1})
attempt("again", fit={"epochs": 2}, settings={"rate": 1})
attempt("changed model", model=network(5), settings={"rate": 1})
attempt("changed setting", settings={"rate": 2})
attempt("arrays", data=inputs)
attempt("unknown length", data=dataset.filter(lambda *_: True))
attempt("other length", fit={"steps_per_epoch": 3})
attempt("not built", model=keras.Sequential([keras.layers.Dense(1)]))
(directory / "file").write_text("")
attempt("not writable", path="file")
(directory / "trained").mkdir()
(directory / "trained" / ".horovodjob-run.json").write_text('{"run": "0123", "settings": {"data": "digits"}}')
attempt("another program", path="trained")
attempt("never", path="run", resume="never")
sizes = sorted(path.name for path in (directory / "run" / "earlier-runs").iterdir())
print(f"earlier runs: {len(sizes)}")
