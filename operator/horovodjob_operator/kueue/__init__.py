"""Jobs that wait for a queue of Kueue: facts of a Workload, decisions, requests, and the reconciler that acts."""
