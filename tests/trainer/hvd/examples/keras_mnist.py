"""The shape of the example keras_mnist.py of Horovod, for Keras 2 and TensorFlow 1, with generated images."""

import math
import os
import sys

import horovod.keras as hvd
import keras
import numpy as np
import tensorflow as tf
from keras import backend as K
from keras.layers import Dense, Dropout, Flatten
from keras.models import Sequential

hvd.init()
config = tf.ConfigProto()
config.gpu_options.allow_growth = True
config.gpu_options.visible_device_list = str(hvd.local_rank())
K.set_session(tf.Session(config=config))
os.chdir(sys.argv[1])

epochs = math.ceil(2.0 / hvd.size())
random = np.random.default_rng(hvd.rank())
x_train = random.random((128, 14, 14)).reshape(128, 14, 14, 1).astype("float32")
y_train = keras.utils.to_categorical(random.integers(0, 10, 128), 10)

model = Sequential()
model.add(Flatten(input_shape=(14, 14, 1)))
model.add(Dropout(0.25))
model.add(Dense(10, activation="softmax"))

opt = hvd.DistributedOptimizer(keras.optimizers.Adadelta(1.0 * hvd.size()))
model.compile(loss=keras.losses.categorical_crossentropy, optimizer=opt, metrics=["accuracy"])
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
if hvd.rank() == 0:
    callbacks.append(keras.callbacks.ModelCheckpoint("./checkpoint-{epoch}.h5"))
model.fit(
    x_train,
    y_train,
    batch_size=32,
    callbacks=callbacks,
    epochs=epochs,
    verbose=1 if hvd.rank() == 0 else 0,
    validation_data=(x_train, y_train),
)
score = model.evaluate(x_train, y_train, verbose=0)
print("Test loss:", score[0])
np.savez(f"weights-{hvd.rank()}.npz", *model.get_weights())
