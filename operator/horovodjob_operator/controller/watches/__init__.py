"""What the watches report: which jobs to reconcile, and in which namespaces."""
