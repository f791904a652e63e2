"""What a job runs: programs, their input, and implementations of MPI."""
