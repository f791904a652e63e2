"""Features in scripts of 2018 that the tutorial does not use: supported ones work, others raise an error."""

import sys
from collections.abc import Callable

import keras
import tensorflow as tf
from keras import backend as K


def print_error(action: Callable[[], object]) -> None:
    try:
        action()
    except Exception as error:
        print("REJECTED", type(error).__name__, error)


config = tf.ConfigProto(gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=0.5, visible_device_list="0"))
config.inter_op_parallelism_threads = 3
one = tf.config.threading.get_intra_op_parallelism_threads()
K.set_session(tf.Session(config=config))
print("THREADS", one, tf.config.threading.get_inter_op_parallelism_threads())
print_error(lambda: tf.Session().run(None))
print_error(lambda: tf.Session().__enter__())
print_error(lambda: tf.placeholder(tf.float32))
print_error(lambda: K.get_session())
print_error(lambda: __import__("keras.layers.core"))
print_error(lambda: tf.no_such_name)
print("HAS", hasattr(tf, "placeholder"), hasattr(tf, "Variable"))

for module in (keras, tf.keras):
    adadelta, sgd = module.optimizers.Adadelta(), module.optimizers.sgd(lr=0.5, decay=0.25, momentum=0.9)
    print("OPTIMIZERS", K.get_value(adadelta.lr), K.get_value(sgd.lr), K.get_value(sgd.decay))
print("KERAS", keras.__version__, tf.keras.layers.Dense is keras.layers.Dense, "tf_keras" in sys.modules)
