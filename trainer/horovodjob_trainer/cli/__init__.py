"""Settings from the command line, the environment and a file. Imports neither TensorFlow nor Horovod."""
