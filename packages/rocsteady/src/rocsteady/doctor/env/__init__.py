"""Environment variables: those that are set, or that a file would set, and what they do."""
