"""Worked examples of tasks of one's own: data, model, loss and metrics in one module each."""
