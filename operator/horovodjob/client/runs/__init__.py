"""Runs: a directory with a script, as a job."""
