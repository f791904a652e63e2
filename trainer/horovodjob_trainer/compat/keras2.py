"""Replaces Keras 3 by Keras 2, with the names and defaults of Keras 2.1."""

import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Default learning rates of Keras 2.1 that differ from those of its last releases.
LEARNING_RATES = {"Adagrad": 0.01, "Adadelta": 1.0, "Adamax": 0.002, "Nadam": 0.002}
# Warnings for the author of the script.
IGNORED_WARNINGS = (
    r"The `lr` argument is deprecated|`Model\.\w+_generator` is deprecated|You are saving your model as an HDF5"
)
OPTIMIZERS = ("SGD", "RMSprop", "Adagrad", "Adadelta", "Adam", "Adamax", "Nadam")


class _Keras2Importer(MetaPathFinder, Loader):
    """Loads the module `tf_keras.x` as `keras.x`, so that the process has a single Keras."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "keras" and not fullname.startswith("keras."):
            return None
        return ModuleSpec(fullname, self, origin=f"tf_{fullname}")

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module_name = f"tf_{spec.name}"
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name != module_name or "tf_keras" not in sys.modules:
                raise
            version = sys.modules["tf_keras"].__version__
            raise ModuleNotFoundError(
                f"{spec.name} is not in Keras {version}, which runs this script; "
                "import its contents from a different module",
                name=spec.name,
            ) from None
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has overwritten the specification; restores that of tf_keras.
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Make Keras 2 the Keras of this process. Call it before any import of Keras."""
    if "keras" in sys.modules:
        raise RuntimeError(
            f"{sys.modules['keras'].__file__} is already imported, and a process can have only one Keras"
        )
    os.environ["TF_USE_LEGACY_KERAS"] = "1"  # tf.keras, and horovod.tensorflow.keras with it
    sys.meta_path.insert(0, _Keras2Importer())
    warnings.filterwarnings("ignore", rf"\s*({IGNORED_WARNINGS})", UserWarning)
    for namespace in _namespaces("optimizers"):
        _install_legacy_optimizers(namespace)


def replace(original: Any, replacement: Any) -> None:
    """Replace the original in all modules of Keras, which exports each function in several modules."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "tf_keras":
            for attribute, value in list(vars(module).items()):
                if value is original:
                    setattr(module, attribute, replacement)


def add(part: str, name: str, value: Any) -> None:
    """Add a name to a public module of Keras, such as `backend`."""
    for namespace in _namespaces(part):
        setattr(namespace, name, value)


def _namespaces(part: str) -> tuple[ModuleType, ModuleType]:
    """The two modules `keras.PART` and `tf.keras.PART`."""
    keras, tf_keras = (importlib.import_module(name) for name in (f"keras.{part}", f"tf_keras.api._v2.keras.{part}"))
    return keras, tf_keras


def _install_legacy_optimizers(namespace: Any) -> None:
    """Export the optimizers with `lr` and `decay` under the names of Keras 2.1: `RMSprop` and `rmsprop`."""
    for name in OPTIMIZERS:
        optimizer = getattr(namespace.legacy, name)
        if name in LEARNING_RATES:
            _, *others = optimizer.__init__.__defaults__
            optimizer.__init__.__defaults__ = (LEARNING_RATES[name], *others)
        setattr(namespace, name, optimizer)
        setattr(namespace, name.lower(), optimizer)
