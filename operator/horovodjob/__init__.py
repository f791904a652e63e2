"""HorovodJob: distributed Keras/TensorFlow training with Horovod on Kubernetes."""
