"""Distributed Keras training with Horovod, run by every rank of a job as `python -m horovodjob_trainer`."""

import sys

if sys.platform != "linux":
    raise SystemExit(
        f"horovodjob_trainer runs on Linux and not on {sys.platform}: use WSL 2 on Windows, and on macOS a "
        "container of the trainer's image, such as `hvj run --local --image IMAGE --gpus 0 train.py`"
    )
