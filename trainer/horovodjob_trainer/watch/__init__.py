"""Notices a training that makes no progress, and says which rank the others wait for."""
