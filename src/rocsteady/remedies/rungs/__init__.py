"""One remedy a file: what it is (``REMEDY``), and the change that it makes (``apply``).

Not in the table of ``remedies/catalog.py``, not tried.
"""
