"""The problem, its configurations, the solvers, the plan, its verifier, manifests and launchers."""
