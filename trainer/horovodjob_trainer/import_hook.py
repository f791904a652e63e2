"""Scripts that import Horovod's own Keras layers get ours where those would train without synchronisation.

`install` is called when Python starts, by a line in site-packages that `python -m horovodjob_trainer.import_hook
enable` writes: what Python has not loaded anyway may not be imported here before a script asks for Horovod.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing itself would cost every start of Python several milliseconds
if TYPE_CHECKING:
    from typing import Any

PTH = "horovodjob_stock_imports.pth"
LINE = "import horovodjob_trainer.import_hook as stock; stock.install()\n"
LAYERS = {
    f"{parent}{part}": f"horovodjob_trainer.hvd{part}"
    for parent in ("horovod.keras", "horovod.tensorflow.keras")
    for part in ("", ".callbacks", ".elastic")
}
TENSORFLOW = "horovod.tensorflow"
SWITCH = "HOROVODJOB_STOCK_HOROVOD"


class Finder:
    """Finds our modules under the names of Horovod's, and Horovod's TensorFlow layer with what it needs for Keras 3."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The module's specification; None for every other module and where Keras 2 is in use."""
        if (name not in LAYERS and name != TENSORFLOW) or not serves_keras3():
            return None
        from importlib.machinery import ModuleSpec, PathFinder

        if name in LAYERS:
            substitute: Any = _Substitute()
            return ModuleSpec(name, substitute, is_package="." not in name.partition("keras")[2])
        spec: Any = PathFinder.find_spec(name, path)
        if spec is not None:
            spec.loader = _Mended(spec.loader)
        return spec


class _Substitute:
    """Loads the module of this package that has another's place."""

    def create_module(self, spec: Any) -> Any:
        return None

    def exec_module(self, module: Any) -> None:
        import importlib

        sys.modules[module.__name__] = importlib.import_module(LAYERS[module.__name__])


class _Mended:
    """Loads Horovod's TensorFlow layer and replaces in it what fails with Keras 3."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: Any) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self.loader.exec_module(module)
        module.__loader__ = module.__spec__.loader = self.loader
        mend(module)


def serves_keras3() -> bool:
    """Whether `keras` is Keras 3 and nobody has asked for Horovod's own code."""
    if os.environ.get(SWITCH) == "1" or os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true"):
        return False
    keras = sys.modules.get("keras")  # it may be an alias of Keras 2
    if keras is not None:
        return str(getattr(keras, "__version__", "3")).startswith("3")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("keras").startswith("3")
    except PackageNotFoundError:
        return False


def mend(horovod: Any) -> None:
    """Gives the module `horovod.tensorflow` an optimizer, tapes and states that know Keras 3's objects."""
    import functools
    import inspect

    own_optimizer, own_broadcast = horovod.DistributedOptimizer, horovod.broadcast_variables
    parameters = inspect.signature(own_optimizer)

    @functools.wraps(own_optimizer)
    def DistributedOptimizer(*args: Any, **kwargs: Any) -> Any:
        import keras

        given = parameters.bind(*args, **kwargs).arguments
        if not isinstance(given["optimizer"], keras.optimizers.Optimizer):
            return own_optimizer(*args, **kwargs)
        given.pop("use_locking", None)  # a setting of TensorFlow 1's optimizers
        return _ours().DistributedOptimizer(**given)

    @functools.wraps(own_broadcast)
    def broadcast_variables(variables: Any, *args: Any, **kwargs: Any) -> Any:
        import keras

        variables = list(variables)
        with_keras = any(isinstance(variable, keras.Variable) for variable in variables)
        return (_ours().broadcast_variables if with_keras else own_broadcast)(variables, *args, **kwargs)

    horovod.DistributedOptimizer = DistributedOptimizer
    horovod.broadcast_variables = broadcast_variables
    for name in ("DistributedGradientTape", "PartialDistributedGradientTape", "SyncBatchNormalization"):
        setattr(horovod, name, _later(name))
    for name in ("run", "TensorFlowKerasState", "TensorFlowState"):
        setattr(horovod.elastic, name, _later("elastic", name))


def _ours() -> Any:
    import importlib

    return importlib.import_module("horovodjob_trainer.hvd")


def _later(*path: str) -> Any:
    # Our layer imports this very module, so it cannot be had before the first call.
    def called(*args: Any, **kwargs: Any) -> Any:
        found = _ours()
        for name in path:
            found = getattr(found, name)
        return found(*args, **kwargs)

    called.__name__ = called.__qualname__ = path[-1]
    return called


def install() -> None:
    """Lets the imports of this process go through Finder."""
    if os.environ.get(SWITCH) != "1" and not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())


def remove() -> None:
    """Lets the imports of this process find Horovod's own modules again; those imported before stay."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Finder)]


def main() -> int:
    """Writes or deletes the line that calls `install` in every process of this Python environment."""
    import sysconfig
    from pathlib import Path

    wish = sys.argv[1:]
    file = Path(sysconfig.get_path("purelib"), PTH)
    if wish == ["enable"]:
        file.write_text(LINE)
    elif wish == ["disable"]:
        file.unlink(missing_ok=True)
    else:
        print("usage: python -m horovodjob_trainer.import_hook enable|disable", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
