"""What a terminal shows of jobs and transfers while a command runs."""
