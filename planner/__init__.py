"""The problem, its columns, the solvers, the plan, its verifier, manifests and the launcher."""
