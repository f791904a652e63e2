"""Runs cases one after the other on all ranks: `run.py PASSED MODULE.CASE ...`. A rank in which one fails ends the job.

PASSED is the file for the names of the cases that have passed on all ranks.
"""

import importlib
import os
import sys
import traceback
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from horovodjob_trainer import hvd

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(2)  # as in the trainer: with 1, gradients of biases are late
hvd.init()
for case in sys.argv[2:]:
    module, name = case.split(".")
    try:
        getattr(importlib.import_module(f"trainer.hvd.cases.{module}"), name)()
    except Exception:
        print(f"{case} failed on rank {hvd.rank()}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        os._exit(1)  # the other ranks can wait for an operation of this one
    hvd.allgather_object(None)
    if hvd.rank() == 0:
        with Path(sys.argv[1]).open("a") as file:
            file.write(f"{case}\n")
