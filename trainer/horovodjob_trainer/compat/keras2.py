"""Keras 2 in the place of Keras 3, with the names and defaults of Keras 2.1."""

import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Optimizers whose learning rate was another one in Keras 2.1 when the script gave none.
LEARNING_RATES = {"Adagrad": 0.01, "Adadelta": 1.0, "Adamax": 0.002, "Nadam": 0.002}
# Advice for the author, who is not there to take it.
ADVICE = r"The `lr` argument is deprecated|`Model\.\w+_generator` is deprecated|You are saving your model as an HDF5"
OPTIMIZERS = ("SGD", "RMSprop", "Adagrad", "Adadelta", "Adam", "Adamax", "Nadam")


class _KerasIsKeras2(MetaPathFinder, Loader):
    """Gives the module `tf_keras.x` to whoever imports `keras.x`, so that there is one Keras in the process."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "keras" and not fullname.startswith("keras."):
            return None
        return ModuleSpec(fullname, self, origin=f"tf_{fullname}")

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        wanted = f"tf_{spec.name}"
        try:
            module = importlib.import_module(wanted)
        except ModuleNotFoundError as error:
            if error.name != wanted:
                raise
            sentence = f"{spec.name} is not in Keras 2.18, which runs this script; import its contents from elsewhere"
            raise ModuleNotFoundError(sentence, name=spec.name) from None
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just overwritten it; the module keeps its own name.
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Makes Keras 2 the Keras of this process, before anything has imported another."""
    if "keras" in sys.modules:
        raise RuntimeError(f"{sys.modules['keras'].__file__} is imported already, and there can be one Keras only")
    os.environ["TF_USE_LEGACY_KERAS"] = "1"  # tf.keras, and horovod.tensorflow.keras with it
    sys.meta_path.insert(0, _KerasIsKeras2())
    warnings.filterwarnings("ignore", rf"\s*({ADVICE})", UserWarning)
    for namespace in _namespaces("optimizers"):
        _use_old_optimizers(namespace)


def replace(original: Any, replacement: Any) -> None:
    """Puts the replacement wherever Keras has bound the original: it exports each function under several modules."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "tf_keras":
            for attribute, value in list(vars(module).items()):
                if value is original:
                    setattr(module, attribute, replacement)


def add(part: str, name: str, value: Any) -> None:
    """Adds a name to a public module of Keras, such as `backend`."""
    for namespace in _namespaces(part):
        setattr(namespace, name, value)


def _namespaces(part: str) -> tuple[ModuleType, ModuleType]:
    """The module behind `keras.PART` and that behind `tf.keras.PART`, which are two."""
    keras, tf_keras = (importlib.import_module(name) for name in (f"keras.{part}", f"tf_keras.api._v2.keras.{part}"))
    return keras, tf_keras


def _use_old_optimizers(namespace: Any) -> None:
    """The optimizers that take `lr` and `decay`, under the names of Keras 2.1: `RMSprop` and `rmsprop`."""
    for name in OPTIMIZERS:
        optimizer = getattr(namespace.legacy, name)
        if name in LEARNING_RATES:
            _, *others = optimizer.__init__.__defaults__
            optimizer.__init__.__defaults__ = (LEARNING_RATES[name], *others)
        setattr(namespace, name, optimizer)
        setattr(namespace, name.lower(), optimizer)
