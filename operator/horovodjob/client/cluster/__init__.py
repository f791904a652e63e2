"""The cluster and its nodes: requests to Kubernetes and to AKS."""
