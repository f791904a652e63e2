"""Queues of Kueue: what a Workload says, and what to do about it. Pure."""
