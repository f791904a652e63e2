"""Progress reports of rank 0: log lines, progress.jsonl, TensorBoard and the operator."""
