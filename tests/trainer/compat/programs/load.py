"""Loads models with one version of Keras, without Horovod: load.py keras|tf_keras FILE ..."""

import importlib
import sys

import numpy as np

keras = importlib.import_module(sys.argv[1])
x = np.linspace(0, 1, 2 * 32 * 32 * 3, dtype=np.float32).reshape(2, 32, 32, 3)
for file in sys.argv[2:]:
    model = keras.models.load_model(file, compile=False)
    answer = " ".join(f"{value:.4f}" for value in model(x)[0].numpy())
    print("LOADED", keras.__version__.partition(".")[0], answer)
if keras.__name__ == "tf_keras":
    optimizer = keras.models.load_model(sys.argv[2]).optimizer
    settings = [f"{float(value):.4g}" for value in (optimizer.iterations, optimizer.lr, optimizer.decay)]
    print("OPTIMIZER", type(optimizer).__name__, *settings, len(optimizer.get_weights()))
