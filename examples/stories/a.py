"""Note A: the first backward pass never ends, on native Windows."""

from story import PLAN, Step, Story, tell

WORLD = ("--embedding", "32", "--hidden", "64", "--heads", "2", "--prey", "4", "--predators", "3")
STORY = Story(
    note="A",
    title="Windows, RX 9070 XT",
    example="predator_prey",
    machine="rx9070xt-windows",
    took=(
        "seven tries of variables and settings, a minimal reproduction and three guides, over a"
        " time that the note does not give"
    ),
    by_hand="""
Tried HSA_ENABLE_SDMA=0 and HIP_LAUNCH_BLOCKING=1
  `env` says that Windows does not read the first, and that the second is for debugging
Wrote a minimal reproduction and its runner
  `probe attention-backward`, in a process that may hang
Compared WSL2, the CPU and a smaller model by estimate
  `plan` measures what can be tried, and dates the rest
Watched a log with times
  `run` proves the hang, keeps the stacks and starts again
""",
    job="""
total = { steps = 5000 }
deadline = "2d"
""",
    small=(
        "--embedding 32 --hidden 64 --heads 2 --prey 4"
        " --predators 3 --episodes 60 --episode_length 8 --held_out_episodes 2"
    ),
    full="--episodes 1000",
    faults=(("backward", 12, 1),),
    before=(
        Step(
            words="doctor --root MACHINE",
            lines=("AMD does not support training on native Windows", "rx9070xt-windows-hang"),
        ),
        Step(
            words="env --root MACHINE",
            lines=(
                "Nothing on native Windows reads HSA_",
                "HIP_LAUNCH_BLOCKING=1 is meant for debugging",
            ),
            code=1,
        ),
        Step(words="probe attention-backward:math", lines=("ok attention-backward math",)),
        *PLAN,
    ),
    run=("hung: ", "Incident 1", "attempt 2", r"done\. (About )?\d+ steps"),
    report=("hung, in attempt 1", "lost to failures"),
)

if __name__ == "__main__":
    tell(STORY)
