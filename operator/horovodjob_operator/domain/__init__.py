"""Decisions about a HorovodJob. Pure: same arguments, same answer; no I/O, no clock, no kopf, no logging."""
