"""The command line `hvj`, also installed as `kubectl hvj`."""
