"""What the operating system shows of a process tree."""
