"""What works here when we try it? Probes, and drills."""
