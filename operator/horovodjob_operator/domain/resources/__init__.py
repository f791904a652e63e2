"""The Kubernetes objects of a job, one file each. Pure: builders need neither a client nor entropy."""
