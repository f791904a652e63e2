"""Loads models with both versions of Keras, without Horovod: load.py FILE ..."""

import sys

import keras
import numpy as np
import tf_keras

x = np.linspace(0, 1, 2 * 32 * 32 * 3, dtype=np.float32).reshape(2, 32, 32, 3)
for version in (keras, tf_keras):
    for file in sys.argv[1:]:
        model = version.models.load_model(file, compile=False)
        answer = " ".join(f"{value:.4f}" for value in model(x)[0].numpy())
        print("LOADED", version.__version__.partition(".")[0], answer)
optimizer = tf_keras.models.load_model(sys.argv[1]).optimizer
settings = [f"{float(value):.4g}" for value in (optimizer.iterations, optimizer.lr, optimizer.decay)]
print("OPTIMIZER", type(optimizer).__name__, *settings, len(optimizer.get_weights()))
