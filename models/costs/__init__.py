"""Cost forms: how seconds and memory grow with batch and length, and how a form is fitted."""
