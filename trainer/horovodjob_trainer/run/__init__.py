"""A run on one rank: training, evaluation and prediction. Importing the package itself imports no module."""
