"""What can be seen of a process tree from outside. It collects and never judges."""
