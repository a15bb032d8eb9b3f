"""What is wrong with this machine, and what a person should do."""
