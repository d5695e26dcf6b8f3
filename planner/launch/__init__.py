"""Launching: the one place that starts, watches and stops the roles of a manifest on a host."""
