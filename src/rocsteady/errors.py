"""What can go wrong with rocsteady itself.

::

    RocsteadyError
    |-- ExaminationError    this machine, or the recording of one, could not be looked at
    |   `-- RecordingError  the recording is damaged, hostile or of another version
    `-- KnowledgeError      an entry of the knowledge base is wrong; names file, entry and field

A broken GPU is never an error here: it is a Finding. An error means "I cannot find out", and is
one line for the person who reads it.
"""


class RocsteadyError(Exception):
    """Base of everything that rocsteady raises on purpose."""


class ExaminationError(RocsteadyError):
    """The machine could not be looked at."""


class RecordingError(ExaminationError):
    """A recording cannot be replayed."""


class KnowledgeError(RocsteadyError):
    """An entry of the knowledge base is wrong."""
