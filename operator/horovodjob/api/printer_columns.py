"""The printer columns of `kubectl get`."""

PRINTER_COLUMNS = (
    ("Phase", "string", ".status.phase", 0, "Phase of the job."),
    ("Workers", "string", ".status.workersReady", 0, "Ready workers and all workers."),
    ("Progress", "string", ".status.training.percent", 0, "Completed percentage of the training."),
    ("Restarts", "integer", ".status.restarts", 0, "Restarts after failures."),
    ("Age", "date", ".metadata.creationTimestamp", 0, "Time since creation."),
    ("Queue", "string", ".status.queue.name", 1, "LocalQueue of Kueue."),
    ("Position", "integer", ".status.queue.position", 1, "Position in the queue."),
    ("Pool", "string", ".spec.pool", 1, "AKS node pool."),
    ("GPUs", "integer", ".spec.worker.gpus", 1, "GPUs per worker."),
    ("Exit code", "integer", ".status.exitCode", 1, "Exit code of mpirun."),
    ("Start", "date", ".status.startTime", 1, "Time of admission."),
    ("Finished", "date", ".status.completionTime", 1, "Time of completion."),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', 1, "Reason for the phase."),
)
"""Name, type, JSON path, priority (1 is shown with `-o wide` only) and description."""
