"""Checkpoints: their file format, the output directory that holds them, and the state that they restore."""
