"""Who starts the processes of an attempt."""
