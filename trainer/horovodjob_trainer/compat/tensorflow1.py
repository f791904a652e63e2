"""The names of TensorFlow 1 that configure the devices of a Keras script. Other names raise an error."""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, NoReturn

import tensorflow as tf

from horovodjob_trainer.compat import keras2

SUPPORTED_FIELDS = {
    "gpu_options.allow_growth",
    "gpu_options.visible_device_list",
    "intra_op_parallelism_threads",
    "inter_op_parallelism_threads",
    "allow_soft_placement",  # always on in TensorFlow 2
    "log_device_placement",
}


class NotSupported(AttributeError, NotImplementedError):
    """The script uses a part of TensorFlow 1 that is not supported."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} belongs to TensorFlow 1, of which horovodjob_trainer.compat supports only the configuration of a "
            "session; change this line to TensorFlow 2"
        )


class Session:
    """A configuration for K.set_session. It cannot run a graph."""

    def __init__(self, target: str = "", graph: Any = None, config: Any = None) -> None:
        self.config = config

    def __getattr__(self, name: str) -> NoReturn:
        raise NotSupported(f"tf.Session().{name}")

    def __enter__(self) -> NoReturn:
        raise NotSupported("'with tf.Session()'")

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


def install(threads: int, log: Callable[[str], None]) -> None:
    """Add the names. Unless the script configures the threads, this rank uses `threads`."""

    def set_session(session: Session) -> None:
        config = session.config
        if config is None:
            return
        for name in _fields(config):
            if name not in SUPPORTED_FIELDS:
                log(f"{name} of tf.ConfigProto is not supported and has no effect")
        _set_threads(config.intra_op_parallelism_threads or threads, config.inter_op_parallelism_threads)
        _configure_gpus(config.gpu_options)
        tf.debugging.set_log_device_placement(config.log_device_placement)

    def get_session() -> NoReturn:
        raise NotSupported("K.get_session()")

    def missing(name: str) -> NoReturn:
        if hasattr(tf.compat.v1, name):
            raise NotSupported(f"tf.{name}")
        raise AttributeError(f"module 'tensorflow' has no attribute '{name}'", name=name, obj=tf)

    tf.ConfigProto, tf.GPUOptions, tf.Session = tf.compat.v1.ConfigProto, tf.compat.v1.GPUOptions, Session
    tf.__getattr__ = missing
    keras2.add("backend", "set_session", set_session)
    keras2.add("backend", "get_session", get_session)
    _set_threads(threads)


def _set_threads(intra: int, inter: int = 0) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(intra)
    tf.config.threading.set_inter_op_parallelism_threads(inter or max(2, intra))


def _configure_gpus(options: Any) -> None:
    gpus = tf.config.list_physical_devices("GPU")
    if gpus and options.visible_device_list:
        numbers = [int(number) for number in options.visible_device_list.split(",")]
        if missing := [number for number in numbers if number >= len(gpus)]:
            raise ValueError(f"visible_device_list names GPU {missing[0]}, and this process has {len(gpus)} GPUs")
        gpus = [gpus[number] for number in numbers]
        tf.config.set_visible_devices(gpus, "GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, options.allow_growth)


def _fields(message: Any, prefix: str = "") -> Iterator[str]:
    """Dotted names of the fields that are set in a protocol buffer message."""
    for field, value in message.ListFields():
        if hasattr(value, "ListFields"):
            yield from _fields(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}"
