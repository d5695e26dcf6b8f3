"""Launch a manifest on a host, and move the host from one manifest to the next."""
