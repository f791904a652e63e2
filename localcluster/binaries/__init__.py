"""The binaries of the cluster: pinned versions, the Go toolchain, and the cache of what was built."""
