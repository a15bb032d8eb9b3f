"""What happened so far, here. SQLite, written before the deed."""
