"""What works here when really tried? A probe is an attempt at a payload."""
