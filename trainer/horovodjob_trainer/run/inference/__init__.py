"""The use of a trained model."""
