"""The Kubernetes objects of a job. Pure: builders need neither a client nor entropy."""
