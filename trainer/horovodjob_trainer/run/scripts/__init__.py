"""Resumable runs of scripts with `fit` of Keras or with a loop of their own."""
