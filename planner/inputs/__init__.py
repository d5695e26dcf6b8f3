"""Read what a user names and price it as a problem: the profiles folder, the cluster and the running plan."""
