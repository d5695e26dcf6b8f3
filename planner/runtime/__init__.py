"""Move a host from one manifest to the next: journal, order of moves and checkpoints; starts nothing."""
