"""What the world knows: data with sources, and the typed reader of it."""
