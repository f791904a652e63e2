"""Access to the API server: requests, watches and the cache of pods, reviews, checks before a start, and the Lease."""
