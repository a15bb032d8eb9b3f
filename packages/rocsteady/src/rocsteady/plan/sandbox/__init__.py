"""Runs a script in the user's folder without changing it: in an overlay or in a copy."""
