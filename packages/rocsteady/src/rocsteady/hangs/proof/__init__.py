"""What every thread waits for, and whether anything could end that wait."""
