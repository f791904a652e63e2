"""The I/O of the operator: the client of the API server, its watches and caches, keys, reviews and the Lease."""
