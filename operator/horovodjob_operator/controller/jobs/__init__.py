"""The jobs that the process knows, and their status."""
