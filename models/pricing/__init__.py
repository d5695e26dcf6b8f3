"""What a role costs in every layout and number of replicas it may take."""
