"""Batch AI: its job.json, names, variables and paths, converted to HorovodJob."""
