"""The timeout of the tests of the trainer."""

# Ends tests that hang. No test depends on its length. The stage has a lower priority than all others.
TIMEOUT_SECONDS = 600
