"""Seconds that replicas need to generate the responses of a step."""
