"""Manifests: a plan written down for launchers, its checks, and one emitter per launcher."""
