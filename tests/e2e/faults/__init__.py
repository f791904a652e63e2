"""What is lost while a job runs: workers, nodes and the network."""
