"""Sweeps: jobs of one experiment whose parameters Optuna chooses by a metric that the jobs report.

The jobs are the only record. Each has the definition of its sweep, its number and its parameters, so that a study is
built from the jobs alone, on any machine.
"""
