"""Note E: training takes the whole machine down."""

from story import PLAN, Step, Story, tell

STORY = Story(
    note="E",
    title="Training takes the whole machine down",
    example="eeg",
    machine="rx5700xt-override",
    took="two crashes of the whole machine, hours of searching and a plan of four days",
    by_hand="""
Installed torch 2.5.1 for ROCm 6.2 and set an override
  `doctor` says why this cannot work, before it is tried
Restarted the machine, twice
  `run` remembers across the reboot what was being tried
Estimated the CPU at 12 to 24 hours and a rented card at $3 to $6
  `plan` measures the first; a long job gets a rented card beside it, with a dated price
Looked after the first night
  `watch` shows progress and forecast at any time
Wrote a timeline of four days and a list for today
  both are part of the decision page
""",
    job="""
deadline = "4d"
budget = 25
""",
    data="--preset small",
    small="--preset small --checkpoint_every 10",
    full="--preset small --layers 2 --pretrain_epochs 400 --head_epochs 40 --checkpoint_every 50",
    faults=(),
    ends="cpu",
    goes_down_at=20,
    before=(
        Step(
            words="doctor",
            lines=("torch 2.5.1 includes no code for gfx1010", "another instruction set"),
            code=1,
        ),
        Step(words="env", lines=("1 variable: harms 1",), code=1),
        *PLAN,
    ),
    run=(
        "the machine crashed",
        r"done +(about )?\d+ steps",
    ),
    report=("machine crashed",),
)

if __name__ == "__main__":
    tell(STORY)
