"""The operator of HorovodJob: pure decisions in `domain`, effects in `cluster`, one pass in `reconcile`."""
