"""What may change before the next attempt? Remedies are data; the ladder chooses one."""
