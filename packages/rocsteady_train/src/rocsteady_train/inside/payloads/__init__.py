"""Small experiments that run in the user's interpreter, each in a process that may hang or die.

A payload is a function of one argument, a Trial. It does the same thing again and again, says after
each try that it is done, and raises if something is not as it should be.
"""
