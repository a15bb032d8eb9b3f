"""What several hosts of one job tell each other."""
