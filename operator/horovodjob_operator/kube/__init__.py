"""The I/O of the operator: the client of the API server, its watches, the cache of pods, keys, reviews and the Lease."""
