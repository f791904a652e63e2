"""Pods as the few facts that decisions need. Pure."""
