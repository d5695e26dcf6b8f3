"""Observe GPUs, hosts and the work of roles: sources, recordings, readers, observations."""
