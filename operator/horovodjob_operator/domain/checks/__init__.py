"""The checks that determine the state of a job: one file a policy, in the order of `table.CHECKS`. Pure."""
