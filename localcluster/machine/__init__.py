"""This machine: what it must have, and what clusters change on it."""
