"""The operator for HorovodJobs: decisions in `domain`, I/O in `kube` and `servers`, reconciliation in `controller`."""
