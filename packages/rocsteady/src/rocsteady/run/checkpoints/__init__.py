"""From where an attempt goes on."""
