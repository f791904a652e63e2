"""A correct script: its second training uses the callbacks. It creates a directory and files on every rank."""

import os
import sys

import horovod.keras as hvd
import keras
import numpy as np

hvd.init()
model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(2,))])
model.compile(loss="mse", optimizer=hvd.DistributedOptimizer(keras.optimizers.sgd(lr=0.0)))
callbacks = [keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: print(f"CALLED {hvd.rank()} {epoch + 1}"))]
x, y = np.zeros((4, 2)), np.zeros((4, 1))
model.fit(x, y, epochs=2, verbose=0)
model.fit(x, y, initial_epoch=5, epochs=6, verbose=0, callbacks=callbacks)

folder = os.path.join(sys.argv[1], "made", "by", "all")
os.makedirs(folder)
hvd.allreduce(np.zeros(1))  # waits until the folder exists for all ranks
model.save_weights(os.path.join(folder, "weights"))
keras.models.save_model(model, os.path.join(folder, "model.h5"))
