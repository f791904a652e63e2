"""The Kubernetes objects of a job, as values. Pure: builders need neither a client nor entropy."""
