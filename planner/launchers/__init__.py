"""Manifests, which describe a plan for launchers; their checks, and one emitter per launcher."""
