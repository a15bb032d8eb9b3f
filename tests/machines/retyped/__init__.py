"""Machines typed by hand from recorded facts, one function a machine."""
