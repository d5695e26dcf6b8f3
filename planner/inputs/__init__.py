"""From what a user names to a priced problem: the profiles folder, the cluster and the running plan."""
