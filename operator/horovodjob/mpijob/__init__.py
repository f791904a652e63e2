"""Kubeflow: an MPIJob (v1alpha2, v1 and v2beta1), converted to HorovodJob."""
