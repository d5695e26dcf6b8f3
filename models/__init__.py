"""Cost models: seconds and memory of one role, from measured points, each number with its origin."""
