"""What may change before the next attempt? One remedy a file; it only describes a change."""
