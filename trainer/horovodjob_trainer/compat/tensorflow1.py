"""The names of TensorFlow 1 with which a Keras script configures its devices. Anything else says that it is missing."""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, NoReturn

import tensorflow as tf

from horovodjob_trainer.compat import keras2

HONOURED = {
    "gpu_options.allow_growth",
    "gpu_options.visible_device_list",
    "intra_op_parallelism_threads",
    "inter_op_parallelism_threads",
    "allow_soft_placement",  # always so in TensorFlow 2
    "log_device_placement",
}


class NotCarried(AttributeError, NotImplementedError):
    """The script uses something of TensorFlow 1 that has no counterpart here."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is of TensorFlow 1, and of that horovodjob_trainer.compat has only what configures a session; "
            "change this line to TensorFlow 2"
        )


class Session:
    """Holds a configuration until K.set_session applies it; there is no graph to run."""

    def __init__(self, target: str = "", graph: Any = None, config: Any = None) -> None:
        self.config = config

    def __getattr__(self, name: str) -> NoReturn:
        raise NotCarried(f"tf.Session().{name}")

    def __enter__(self) -> NoReturn:
        raise NotCarried("'with tf.Session()'")

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


def install(threads: int, say: Callable[[str], None]) -> None:
    """Adds the names; until the script configures it, this rank computes with so many threads."""

    def set_session(session: Session) -> None:
        config = session.config
        if config is None:
            return
        for name in _fields(config):
            if name not in HONOURED:
                say(f"tf.ConfigProto's {name} is not honoured")
        _use_threads(config.intra_op_parallelism_threads or threads, config.inter_op_parallelism_threads)
        _use_gpus(config.gpu_options)
        tf.debugging.set_log_device_placement(config.log_device_placement)

    def get_session() -> NoReturn:
        raise NotCarried("K.get_session()")

    def missing(name: str) -> NoReturn:
        if hasattr(tf.compat.v1, name):
            raise NotCarried(f"tf.{name}")
        raise AttributeError(f"module 'tensorflow' has no attribute '{name}'", name=name, obj=tf)

    tf.ConfigProto, tf.GPUOptions, tf.Session = tf.compat.v1.ConfigProto, tf.compat.v1.GPUOptions, Session
    tf.__getattr__ = missing
    keras2.add("backend", "set_session", set_session)
    keras2.add("backend", "get_session", get_session)
    _use_threads(threads)


def _use_threads(intra: int, inter: int = 0) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(intra)
    tf.config.threading.set_inter_op_parallelism_threads(inter or max(2, intra))


def _use_gpus(options: Any) -> None:
    gpus = tf.config.list_physical_devices("GPU")
    if gpus and options.visible_device_list:
        wanted = [int(number) for number in options.visible_device_list.split(",")]
        if absent := [number for number in wanted if number >= len(gpus)]:
            raise ValueError(f"visible_device_list names GPU {absent[0]}, and this process sees {len(gpus)}")
        gpus = [gpus[number] for number in wanted]
        tf.config.set_visible_devices(gpus, "GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, options.allow_growth)


def _fields(message: Any, prefix: str = "") -> Iterator[str]:
    """Dotted names of the fields that are set in a protocol buffer."""
    for field, value in message.ListFields():
        if hasattr(value, "ListFields"):
            yield from _fields(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}"
