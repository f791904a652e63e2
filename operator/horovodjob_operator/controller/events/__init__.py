"""Events of Kubernetes: those that the operator posts, and those of others that it reads."""
