"""What comes next after an attempt, and when."""
