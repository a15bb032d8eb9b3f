"""Note C: loader processes that hang now and then, with a deadline on 30 November."""

from story import PLAN, Step, Story, tell

STORY = Story(
    note="C",
    title="Loader processes hang now and then",
    example="detector",
    machine="rx5700xt-override",
    changes=(  # the note names no torch: here it is one with code for the card
        ("2.5.1+rocm6.2", "2.10.0+rocm7.14.0"),
        ("gfx1030", "gfx1010"),
        ('"HSA_OVERRIDE_GFX_VERSION": "10.3.0"', '"HSA_ENABLE_SDMA": "1"'),
    ),
    took="three hangs, each found by running tail twice, and two rewritten scripts",
    by_hand="""
Ran `tail` twice, 60 s apart, and compared batch numbers
  `run` proves the hang and names the place
Wrote a script with 2 workers, spawn and five other changes at once
  one change at a time, each recorded
Wrote a second script with workers=0
  the workarounds `loader-spawn` and `loader-inline`, with the unchanged script
Started again from the first batch
  `run` resumes from the newest checkpoint
Calculated the end and the buffer by hand
  `plan` gives both, with an interval
""",
    job="""
total = { steps = 200 }
deadline = "15d"
""",
    data="--train 400 --held_out 40",
    small="--images 400 --epochs 4 --batch_size 8 --width 4 --checkpoint_every 10 --workers 2",
    full="--images 400 --epochs 500 --batch_size 8 --width 4 --checkpoint_every 100 --workers 2",
    faults=(("every-loader", 26, 2_574),),
    ends="gpu+loader-inline or loader-inline",
    before=(
        Step(words="doctor", lines=("gfx1010-status",)),
        Step(
            words="env",
            lines=("HSA_ENABLE_SDMA=1", "1 is the default"),
            code=1,
        ),
        *PLAN,
    ),
    run=(r"done +(about )?\d+ steps",),
    report=("workers",),
)

if __name__ == "__main__":
    tell(STORY)
