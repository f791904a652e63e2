"""The checks of `hvj doctor`, one module for each subject.

A check reads the cluster through `Facts` and yields results.
"""
