"""What can go wrong with rocsteady itself.

::

    RocsteadyError
    |-- ExaminationError    this machine, or the recording of one, could not be looked at
    |   `-- RecordingError  the recording is damaged, hostile or of another version
    |-- KnowledgeError      an entry of the knowledge base is wrong; names file, entry and field
    |-- JobError            a job file is wrong; names file, key and what is wrong with it
    |-- RequestError        what was asked for cannot be done as it was asked; says what to type
    |-- CommandError        a command could not be started
    |-- LauncherError       torchrun, or a task of srun, has ended: there is nothing to restart
    |-- NotNeededError      the job was done by other hosts, and this one was a spare
    `-- JournalError        the journal could not be written or read
        |-- DamagedJournalError  it holds what rocsteady cannot have written
        `-- NotRecordedError     an intent is not on disk, so the deed must not be done

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


class JobError(RocsteadyError):
    """A job file is wrong."""


class RequestError(RocsteadyError):
    """What was asked for cannot be done as it was asked."""


class CommandError(RocsteadyError):
    """A command could not be started."""

    def __init__(self, text: str, *, exists: bool) -> None:
        super().__init__(text)
        self.code = 126 if exists else 127  # as a shell says it


class LauncherError(RocsteadyError):
    """torchrun, or a task of srun, has ended; whoever started it may start it again."""


class NotNeededError(RocsteadyError):
    """The job was done by other hosts, and this one was a spare."""


class JournalError(RocsteadyError):
    """The journal could not be written or read."""


class DamagedJournalError(JournalError):
    """What the journal holds cannot have been written by rocsteady."""


class NotRecordedError(JournalError):
    """An intent is not on disk, so the deed must not be done."""


EXHAUSTED = "no memory, processes or threads are left here: ulimit -v, ulimit -u"


def is_exhausted(error: Exception) -> bool:
    no_thread = ("can't start new thread",)  # of a RuntimeError: Python has no type for it
    return isinstance(error, MemoryError) or error.args == no_thread
