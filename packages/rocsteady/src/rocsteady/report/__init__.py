"""What happened? One story of a run, and its renderings."""
