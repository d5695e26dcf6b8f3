"""The solvers: baselines, LP bound, CP-SAT choice and placement behind one `solve`."""
