"""The heartbeat page: what one training process tells about itself, in 4 KiB of shared memory.

512 words of 8 bytes in the machine's own byte order. Each word is written by one process only (by
the training, and W_SAVE by the supervisor) and read by the other at any moment; there is no lock,
so a reader may see a beat half told and must only rely on each word by itself. Times are
nanoseconds of ``time.monotonic_ns``. A word that a version does not know is 0.

A beat costs a few words: W_PHASE and W_SINCE, often W_BEATS, and W_TIME of the phase that ends, so
times are exact up to W_SINCE. W_LONGEST has every stay that is longer than SAMPLED; W_COUNT and
W_HISTOGRAM have those and a sample of the shorter ones, one whole step every SAMPLED nanoseconds. A
process that cannot beat any more takes its page away and leaves a note.
"""

MAGIC = 0x31594454534B4352  # the bytes "RCKSTDY1"
VERSION = 1
SIZE = 4096
SUFFIX = ".page"  # the file is named PID.page
NOTE_SUFFIX = ".note"  # PID.note: a line for each thing that does not work here, and why
RAISED_SUFFIX = ".raised"  # PID.raised: JSON of the exception that ended the script
RAISED_VERSION = 1
RESUMES_SUFFIX = ".resumes"  # PID.resumes: JSON of folder and pattern of what it goes on from
RESUMES_VERSION = 1
READ_SUFFIX = ".read"  # PID.read: JSON of the checkpoint that the script went on from
READ_VERSION = 1
SAVED_SUFFIX = ".saved"  # PID.saved: JSON of where it saved, and of a save or a load that failed
SAVED_VERSION = 1
APPLIED_SUFFIX = ".applied"  # PID.applied: JSON of what came of a strategy here
APPLIED_VERSION = 1
IMPORTS_SUFFIX = ".imports"  # PID.imports: JSON of how a script imports torch
READY_SUFFIX = ".ready"  # PID.ready: JSON of how a standby has imported it; it waits now
IMPORTS_VERSION = 1
TAKEN = ".taken"  # is added to the name of a standby's order when that is carried out

# The words, by index.
W_MAGIC = 0
W_VERSION = 1
W_PID = 2
W_MADE = 3  # when the page was made
W_RANK = 4  # rank + 1; 0 is "not told"
W_LOCAL_RANK = 5  # the same
W_WORLD = 6
W_THREAD = 7  # native id of the thread that trains
W_STEP = 8  # optimizer steps
W_BEATS = 9  # signs of progress of any kind; begin and end are counted together, at the begin
W_PHASE = 10  # index into PHASES
W_SINCE = 11  # when this phase began
W_LAST_STEP = 12
W_END = 13  # one of the three below
W_HOOKS = 14  # bit set of what is hooked, by index into HOOKS
W_TOTAL = 15  # steps in all, if the script told; 0 is "not told"
W_TIME = 16  # and the following, one a phase: time spent in it
W_LONGEST = 32  # one a phase: the longest stay so far
W_COUNT = 48  # one a phase: how many stays
W_HISTOGRAM = 64  # BUCKETS words a phase: stays by bit length of their nanoseconds
BUCKETS = 44  # the last one holds everything from 2 hours up
W_LOADERS = 460  # DataLoaders that were iterated over
W_WORKERS = 461  # the most workers that the script asked for
W_CONTEXT = 462  # how they would be started: index into CONTEXTS
W_GUARDED = 464  # NOT_TOLD, NO or YES: the main module can be imported without starting to work
W_PICKLES = 465  # the same: what goes to the workers can be pickled
# The step in which the loss was not finite, of those in a row the first; 0: none.
W_NOT_FINITE = 467
W_FINITE = 468  # the step in which it was so again
W_BASE = 469  # the step that this process went on from; 0: from the beginning
W_SAVE = 470  # written by the supervisor: it grows when a checkpoint would be good to have
W_BATCH = 471  # samples in a batch, where rocsteady_train.Loop trains it
W_MICRO_BATCH = 472  # and in each micro-batch; less if a batch does not fit into memory
W_LOADER_BATCHES = 473  # in an epoch of the loader that the first step was fed by; 0: not known
W_LOADER_BATCH = 474  # samples in each of them; 0: not known
W_PARAMETERS = 475  # that the optimizers of the first steps train, those of all layers together
W_PRECISION = 476  # the lowest that the script computes in: index into PRECISIONS
W_SAVE_FAILED = 477  # the step of the last save plus 1, if that failed; 0: it did not
W_PERSISTENT = 478  # a loader keeps its workers from one epoch to the next: YES, or NOT_TOLD
W_SAVED = 479  # when the last save that succeeded ended; 0: none
W_SAVED_STEP = 480  # the step by then, counted as W_STEP is
W_INTERRUPTED = 481  # SIGINT has a handler of the script's own: YES, or NO
SAMPLED = 250_000_000

RUNNING, FINISHING, RAISED = 0, 1, 2

PHASES = (
    "starting",
    "data",
    "compute",
    "backward",
    "optimizer",
    "checkpoint",
    "compile",
    "evaluate",
    "finishing",
)
STARTING, DATA, COMPUTE, BACKWARD, OPTIMIZER, CHECKPOINT, COMPILE, EVALUATE, FINISH = range(9)

NOT_TOLD, NO, YES = 0, 1, 2
CONTEXTS = ("", "fork", "spawn", "forkserver")
PRECISIONS = ("", "fp32", "bf16", "fp16")  # the first is "not known"

HOOKS = ("optimizer", "loader", "backward", "save", "compile", "evaluate")

# The environment that the supervisor sets for the training process.
PAGES = "ROCSTEADY_PAGES"  # the folder for pages
RUN = "ROCSTEADY_RUN"  # the id of the attempt, by which its processes are found again
SUPERVISOR = "ROCSTEADY_SUPERVISOR"  # pid that may trace us
STRATEGY = "ROCSTEADY_STRATEGY"  # JSON of the settings that inside/ must apply, if there are any
STRATEGY_VERSION = 1
SETTINGS = (  # those that can be in it, named as in model.Strategy
    "workers",
    "worker_context",
    "persistent_workers",
    "prefetch_factor",
    "attention",
    "miopen",
    "precision",
    "compile",
    "gpus",  # seen or not is a matter of variables; here it is how many ranks are started
)
LATE = 10  # steps: a script may make a few before it loads its checkpoint
WRITES = "ROCSTEADY_WRITES"  # the list of what a start that may have to be undone writes
# In it: one of these, the nanoseconds and the size until then (or ABSENT), the path, and a 0.
WRITTEN, REMOVED, ABSENT = "w", "r", "0 -1"
LOOKED_INTO = "l"  # loaded by torch, without the state of an optimizer
RESUME_FROM = "ROCSTEADY_RESUME_FROM"  # the checkpoint that rocsteady_train must go on from
RESUME_TRAINER = "ROCSTEADY_RESUME_TRAINER"  # the checkpoint that somebody else's trainer is given
MICRO_BATCH = "ROCSTEADY_MICRO_BATCH"  # samples that rocsteady_train.Loop may train at a time
BETWEEN_FAILURES = "ROCSTEADY_BETWEEN_FAILURES"  # seconds, as seen on this machine
SAVE_AFTER = "ROCSTEADY_SAVE_AFTER"  # steps until Loop saves, where others did not get so far
FAULTS = "ROCSTEADY_FAULTS"  # JSON of what inside/ must bring about, in a drill
FAULTS_VERSION = 1
FIRED_SUFFIX = ".fired"  # NUMBER.fired: JSON of when and where a fault was brought about
RECORD = "ROCSTEADY_RECORD"  # JSON of what the recorder of operations is to do, in a probe
RECORD_VERSION = 1
OPERATION_SUFFIX = ".operation"  # PID.operation: the operations in flight, a slot a thread
ORIGIN_SUFFIX = ".origin"  # PID.origin: JSON of the operation that numbers went wrong in
NUMBERS_SUFFIX = ".numbers"  # PID.numbers: JSON of what was compared with float64, and what not
SLOTS, SLOT = 8, 16384  # threads that compute at the same time; bytes for each
O_STATE, O_NUMBER, O_BEGAN, O_LENGTH = 0, 1, 2, 3  # words of a slot, before its text
O_TEXT = 32  # bytes before the text
NO_OPERATION, IN_FLIGHT, CAME_BACK, HAS_RAISED = 0, 1, 2, 3
