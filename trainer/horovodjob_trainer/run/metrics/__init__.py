"""Metrics over the examples of all ranks, and the best epoch, which they determine."""
