"""Measure train, score and decode of a Hugging Face architecture with random weights on the local GPU.

Torch and transformers are loaded only when a measurement starts.
"""
