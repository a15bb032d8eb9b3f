"""Note A: the first backward pass never ends, on native Windows."""

from story import PLAN, Step, Story, tell

STORY = Story(
    note="A",
    title="The first backward pass never ends on Windows",
    example="predator_prey",
    machine="rx9070xt-windows",
    took=(
        "seven tries of variables and settings, a minimal reproduction and three guides, over a"
        " time that the note does not give"
    ),
    by_hand="""
Tried HSA_ENABLE_SDMA=0 and HIP_LAUNCH_BLOCKING=1
  `env` says that Windows does not read the first, and that the second is for debugging
Compared WSL2, the CPU and a smaller model by estimate
  `plan` measures what can be tried, and dates the rest
Wrote a guide to WSL2
  `plan --root MACHINE --export wsl2` writes it for the card
Trained a smaller model on the CPU in the meantime
  `run --plan 1` trains on the CPU, unattended
""",
    job="""
total = { steps = 60 }
deadline = "2d"
""",
    small=(
        "--embedding 32 --hidden 64 --heads 2 --prey 4"
        " --predators 3 --episodes 60 --episode_length 8 --held_out_episodes 2"
    ),
    full="--episodes 1000",
    faults=(("every-backward", 1, 1),),
    ends="cpu",
    before=(
        Step(
            words="doctor",
            lines=(
                "AMD's page for ROCm 7.2 lists no support for training",
                "rx9070xt-windows-hang",
            ),
            why="On native Windows only `doctor` and `explain` work. The other commands need Linux"
            " or WSL2, with what `machine --record` wrote on Windows.",
        ),
        Step(
            words="env",
            lines=(
                "Nothing on native Windows reads HSA_",
                "Meant for debugging: every launch waits",
            ),
            code=1,
        ),
        *PLAN,
        Step(
            words="plan --root MACHINE --export wsl2 --yes",
            lines=("Wrote wsl2-guide.md",),
            why="The guide to WSL2 for this machine.",
        ),
    ),
    run=(r"done +(about )?\d+ steps",),
    report=("device=cpu",),
)

if __name__ == "__main__":
    tell(STORY)
