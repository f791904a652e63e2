"""The dashboard: a page with the jobs of a cluster, which `hvj dashboard` serves on this machine."""
