"""What the GPUs of this machine are and do."""
