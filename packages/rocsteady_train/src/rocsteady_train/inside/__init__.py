"""What runs in the user's interpreter without being asked for.

Self-contained: standard library only, torch only once the script has it, Python 3.9 and later. In
the user's process it is called ``_rocsteady_inside``; rooms above import ``wire`` and nothing else.
"""
