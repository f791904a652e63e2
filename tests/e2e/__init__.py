"""End-to-end tests: the operator as a user installs it, jobs as a user writes them, real pods on a real cluster."""
