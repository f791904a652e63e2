"""How long the trainer's tests wait."""

# Ends a wait that is hopeless; no test is right because it is shorter. The stage runs behind all others.
TIMEOUT_SECONDS = 1800
