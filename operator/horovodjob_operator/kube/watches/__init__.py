"""Lists and watches of jobs, pods, Workloads and namespaces."""
