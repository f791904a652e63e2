"""Trainings with checkpoints, shares and the scripts of the tutorial."""
