"""One launch of the command, watched to its end."""
