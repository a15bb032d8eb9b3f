"""Checks that data cannot say, one file each.

A check module has ``check(machine, facts, knowledge)``. It returns what it saw, one line each, and
nothing if all is well; it raises ``CannotTell`` with the name of a fact it would have needed.
"""
