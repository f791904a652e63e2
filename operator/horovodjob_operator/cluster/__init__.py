"""The only I/O of the operator: the API server's client, its watches, keys, and the Lease."""
