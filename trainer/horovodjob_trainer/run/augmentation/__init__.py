"""Augmentation with layers of Keras, a function of the seed and the position of an image in the sequence of the job."""
