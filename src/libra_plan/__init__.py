"""Plan which GPUs each role of each RL post-training task gets, and prove how good the plan is."""

__version__ = "0.1.0"

__all__ = ["__version__"]
