"""Loss, optimizers and learning rates."""
