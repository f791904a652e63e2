"""etcd, the API server and its clients; alone, or as the control plane of a cluster."""
