"""Note D: out of memory after 30 to 50 batches, again and again."""

from story import PLAN, Step, Story, tell

STORY = Story(
    note="D",
    title="RX 7900 XT, out of memory",
    example="futures",
    machine="rx7900xt-allocator",
    took="nine alternatives on paper, planned over two to four weeks",
    by_hand="""
Set four allocator and debug variables
  `env` says that one of them turns the others off
Planned checkpoint and resume
  `run` starts a fresh process from the newest checkpoint
Planned memory profiling
  `probe churn largest-block` fragments memory and finds the largest block
Listed nine alternatives with risk classes
  `plan` ranks them against the deadline, each with its risk
Wrote down when it is a success
  `done_when` in the job file
""",
    job="""
total = { steps = 2000000 }
deadline = "7d"
""",
    data="--rows 60000",
    small="--folds 2 --batch_size 64 --epochs 2 --hidden_layers 64,32 --checkpoint_every 10",
    full="--folds 8 --batch_size 64 --epochs 40 --hidden_layers 512,256 --checkpoint_every 10",
    faults=(("memory", 35, 35), ("memory", 50, 50)),
    before=(
        Step(words="doctor --root MACHINE", lines=("caching-off", "serialisation-left-on")),
        Step(
            words="env --root MACHINE",
            lines=("No effect while PYTORCH_NO_HIP_MEMORY_CACHING is set", "3 harms, 1 cancelled"),
            code=1,
        ),
        Step(words="probe churn", lines=("ok churn",)),
        *PLAN,
    ),
    run=(
        "oom-fragmentation",
        r"attempt 2 resumes from \S+\.pt",
        r"attempt 3 resumes from \S+\.pt",
        r"done\. (About )?\d+ steps",
    ),
    report=("oom-fragmentation|out of memory", "lost to failures"),
)

if __name__ == "__main__":
    tell(STORY)
