"""Metrics over the examples of all ranks, and what they decide."""
