"""What does the user see? Everything rendered in a terminal."""
