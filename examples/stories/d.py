"""Note D: out of memory after 30 to 50 batches, again and again."""

from story import PLAN, Step, Story, tell

STORY = Story(
    note="D",
    title="Out of memory after 30 to 50 batches, again and again",
    example="futures",
    machine="rx7900xt-allocator",
    took="nine alternatives on paper, planned over two to four weeks",
    by_hand="""
Set four allocator and debug variables
  `env` says that one of them turns the others off
Planned checkpoint and resume
  `run` starts a fresh process from the newest checkpoint
Listed nine alternatives with risk classes
  `plan` ranks them against the deadline, each with its risk
Wrote down when it is a success
  `done_when` in the job file
""",
    job="""
total = { steps = 182 }
deadline = "7d"
""",
    data="--rows 60000",
    small="--folds 2 --batch_size 64 --epochs 2 --hidden_layers 64,32 --checkpoint_every 10",
    full="--folds 8 --batch_size 64 --epochs 40 --hidden_layers 512,256 --checkpoint_every 10",
    faults=(("every-memory", 40, 40),),
    # The fault stays with all of them.
    ends="gpu or gpu+clean or gpu+clean+fresh-process or gpu+clean+allocator-no-split",
    before=(
        Step(words="doctor", lines=("caching-off", "serialisation-left-on")),
        Step(
            words="env",
            lines=("No effect while PYTORCH_NO_HIP_MEMORY_CACHING is set", "harms 3, cancelled 1"),
            code=1,
        ),
        Step(
            words="run --yes --name as-it-is --max-attempts 2",
            lines=(r"crashed .*memory", "resumed"),
            code=1,
            why="As the author had it: out of memory, and again after a restart. The message is"
            " that of the note; with caching off, a real one would not speak of a cache.",
        ),
        Step(
            words=PLAN[0].words,
            lines=PLAN[0].lines,
            why="The options of the note's machine, with trials of its job under its fault."
            " Trials take a tenth of the job at most, and this one is short. Of a longer job,"
            " rocsteady also tries the GPU with the variables.",
        ),
        PLAN[1],
    ),
    run=(
        r"crashed .*memory",
        r"resumed ",
        r"done +(about )?\d+ steps",
    ),
    report=("oom-fragmentation|out of memory",),
)

if __name__ == "__main__":
    tell(STORY)
