"""What scripts of 2018 do besides the tutorial: what is carried works, and what is not is named."""

import sys
from collections.abc import Callable

import keras
import tensorflow as tf
from keras import backend as K


def refused(action: Callable[[], object]) -> None:
    try:
        action()
    except Exception as error:
        print("REFUSED", type(error).__name__, error)


config = tf.ConfigProto(gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=0.5, visible_device_list="0"))
config.inter_op_parallelism_threads = 3
one = tf.config.threading.get_intra_op_parallelism_threads()
K.set_session(tf.Session(config=config))
print("THREADS", one, tf.config.threading.get_inter_op_parallelism_threads())
refused(lambda: tf.Session().run(None))
refused(lambda: tf.Session().__enter__())
refused(lambda: tf.placeholder(tf.float32))
refused(lambda: K.get_session())
refused(lambda: __import__("keras.layers.core"))
refused(lambda: tf.no_such_name)
print("HAS", hasattr(tf, "placeholder"), hasattr(tf, "Variable"))

for module in (keras, tf.keras):
    adadelta, sgd = module.optimizers.Adadelta(), module.optimizers.sgd(lr=0.5, decay=0.25, momentum=0.9)
    print("OPTIMIZERS", K.get_value(adadelta.lr), K.get_value(sgd.lr), K.get_value(sgd.decay))
print("KERAS", keras.__version__, tf.keras.layers.Dense is keras.layers.Dense, "tf_keras" in sys.modules)
