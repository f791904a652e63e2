"""What tests, benchmarks and demonstrations share."""
