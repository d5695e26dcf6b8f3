"""Simulate a cluster of RL post-training tasks, event by event, under any allocation policy."""
