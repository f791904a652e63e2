"""Diagnostics of the GPUs of a node with this image: `python -m horovodjob_trainer.gpu_diagnostics`."""
