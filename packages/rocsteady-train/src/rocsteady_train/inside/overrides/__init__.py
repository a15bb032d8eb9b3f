"""Applies the settings of a strategy to an unmodified script."""
