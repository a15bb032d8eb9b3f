"""What has happened so far? Journal, memory of this machine, redaction."""
