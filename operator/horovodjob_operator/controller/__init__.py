"""The controller: events of jobs and pods enqueue jobs, and the reconciler handles one job at a time."""
