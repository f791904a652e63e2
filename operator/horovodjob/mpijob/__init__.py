"""Kubeflow: an MPIJob (v1 and v2beta1), converted to HorovodJob."""
