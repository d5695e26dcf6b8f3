"""Route rollout requests between replicas of different sizes by what their tools return."""
