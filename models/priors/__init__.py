"""What was not measured: other models, other layouts and other numbers of ranks, with stated penalties."""
