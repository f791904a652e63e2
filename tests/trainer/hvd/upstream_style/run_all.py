"""Runs all cases of this folder on two ranks: `run_all.py DIRECTORY`. Each rank writes the errors of each case."""

import importlib
import json
import os
import sys
import traceback
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from horovodjob_trainer import hvd

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
hvd.init()
errors: dict[str, str] = {}
for module in map(importlib.import_module, ("keras_cases", "tensorflow2_keras_cases")):
    for name in [name for name in vars(module) if name.startswith("test_")]:
        key = f"{module.__name__}.{name}"
        try:
            getattr(module, name)()
            errors[key] = ""
        except Exception:
            errors[key] = traceback.format_exc()
Path(sys.argv[1], f"errors-{hvd.rank()}.json").write_text(json.dumps(errors))
hvd.allgather_object(None)
