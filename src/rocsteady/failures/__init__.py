"""Why did this attempt end? Evidence in, one named failure out."""
