"""An import hook that replaces the Keras layers of Horovod, which do not synchronize with Keras 3.

Python calls `install` at its start because of a .pth file in site-packages, which `python -m
horovodjob_trainer.import_hook enable` writes. Until a script imports Horovod, this module therefore imports only
modules that Python itself loads.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # the import of typing would slow every start of Python by several milliseconds
if TYPE_CHECKING:
    from typing import Any

PTH = "horovodjob_stock_imports.pth"
LINE = "import horovodjob_trainer.import_hook as hook; hook.install()\n"
REPLACEMENTS = {
    f"{parent}{part}": f"horovodjob_trainer.hvd{part}"
    for parent in ("horovod.keras", "horovod.tensorflow.keras")
    for part in ("", ".callbacks", ".elastic")
}
TENSORFLOW = "horovod.tensorflow"
DISABLE_VARIABLE = "HOROVODJOB_STOCK_HOROVOD"


class Finder:
    """Finds the replacements of the Keras modules of Horovod, and its TensorFlow module, patched for Keras 3."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The specification of the module; None for every other module and with Keras 2."""
        if (name not in REPLACEMENTS and name != TENSORFLOW) or not uses_keras3():
            return None
        from importlib.machinery import ModuleSpec, PathFinder

        if name in REPLACEMENTS:
            loader: Any = _ReplacementLoader()
            return ModuleSpec(name, loader, is_package="." not in name.partition("keras")[2])
        spec: Any = PathFinder.find_spec(name, path)
        if spec is not None:
            spec.loader = _PatchingLoader(spec.loader)
        return spec


class _ReplacementLoader:
    """Loads the module of this package that replaces a module of Horovod."""

    def create_module(self, spec: Any) -> Any:
        return None

    def exec_module(self, module: Any) -> None:
        import importlib

        _keras3_layer()
        sys.modules[module.__name__] = importlib.import_module(REPLACEMENTS[module.__name__])


class _PatchingLoader:
    """Loads the TensorFlow module of Horovod and patches the functions that fail with Keras 3."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: Any) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self.loader.exec_module(module)
        module.__loader__ = module.__spec__.loader = self.loader
        patch_horovod(module)


def uses_keras3() -> bool:
    """Whether `keras` is Keras 3 and the environment does not disable the hook."""
    if os.environ.get(DISABLE_VARIABLE) == "1" or os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true"):
        return False
    keras = sys.modules.get("keras")  # possibly an alias of Keras 2
    if keras is not None:
        return str(getattr(keras, "__version__", "3")).startswith("3")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("keras").startswith("3")
    except PackageNotFoundError:
        return False


def patch_horovod(horovod: Any) -> None:
    """Replace optimizer, tapes and states in the module `horovod.tensorflow` by versions that support Keras 3."""
    import functools
    import inspect

    original_optimizer, original_broadcast = horovod.DistributedOptimizer, horovod.broadcast_variables
    parameters = inspect.signature(original_optimizer)

    @functools.wraps(original_optimizer)
    def DistributedOptimizer(*args: Any, **kwargs: Any) -> Any:
        import keras

        arguments = parameters.bind(*args, **kwargs).arguments
        if not isinstance(arguments["optimizer"], keras.optimizers.Optimizer):
            return original_optimizer(*args, **kwargs)
        arguments.pop("use_locking", None)  # an argument of TensorFlow 1 optimizers
        return _keras3_layer().DistributedOptimizer(**arguments)

    @functools.wraps(original_broadcast)
    def broadcast_variables(variables: Any, *args: Any, **kwargs: Any) -> Any:
        import keras

        variables = list(variables)
        has_keras_variables = any(isinstance(variable, keras.Variable) for variable in variables)
        return (_keras3_layer().broadcast_variables if has_keras_variables else original_broadcast)(
            variables, *args, **kwargs
        )

    horovod.DistributedOptimizer = DistributedOptimizer
    horovod.broadcast_variables = broadcast_variables
    for name in ("DistributedGradientTape", "PartialDistributedGradientTape", "SyncBatchNormalization"):
        setattr(horovod, name, _deferred_function(name))
    for name in ("run", "TensorFlowKerasState", "TensorFlowState"):
        setattr(horovod.elastic, name, _deferred_function("elastic", name))


def _keras3_layer() -> Any:
    import importlib

    importlib.import_module("horovodjob_trainer.hvd.keras2_arguments").accept_keras2_arguments()
    return importlib.import_module("horovodjob_trainer.hvd")


def _deferred_function(*path: str) -> Any:
    # The replacement imports `horovod.tensorflow`, so it is imported only at the first call.
    def call(*args: Any, **kwargs: Any) -> Any:
        function = _keras3_layer()
        for name in path:
            function = getattr(function, name)
        return function(*args, **kwargs)

    call.__name__ = call.__qualname__ = path[-1]
    return call


def install() -> None:
    """Install the hook in this process."""
    if os.environ.get(DISABLE_VARIABLE) != "1" and not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())


def remove() -> None:
    """Remove the hook from this process. Modules that are already imported stay."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Finder)]


def main() -> int:
    """Write or delete the .pth file that calls `install` in every process of this Python environment."""
    import sysconfig
    from pathlib import Path

    action = sys.argv[1:]
    file = Path(sysconfig.get_path("purelib"), PTH)
    if action == ["enable"]:
        file.write_text(LINE)
    elif action == ["disable"]:
        file.unlink(missing_ok=True)
    else:
        print("usage: python -m horovodjob_trainer.import_hook enable|disable", file=sys.stderr)
        return 2
    return 0
