"""Distributed Keras training with Horovod, run by every rank of a job as `python -m horovodjob_trainer`."""
