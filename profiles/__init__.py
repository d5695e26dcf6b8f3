"""Schemas, readers and importers of profiles, workloads and clusters; the shipped measurements."""
