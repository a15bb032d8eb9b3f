"""What happens when something fails: injects faults into an ordinary run."""
