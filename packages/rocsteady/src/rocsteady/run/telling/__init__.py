"""Who is told what a run does: the terminal, the journal, notifications, metrics."""
