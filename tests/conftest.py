"""Settings of all tests: a busy machine must not fail a property by being slow."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.register_profile("brief", deadline=None, max_examples=20)  # where another run looks closer
settings.load_profile("patient")
