"""Memory of one GPU: states, peaks from a model's shape, and upper bounds of measured peaks."""
