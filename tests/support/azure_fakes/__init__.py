"""Servers that speak Azure's protocols, for tests that run the real SDKs against them.

They answer what the project sends and no more: an operation or a fault is added only with its first use.
"""
