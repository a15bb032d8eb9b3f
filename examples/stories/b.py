"""Note B: hipBLAS cannot allocate a handle; two cards, here two ranks on one host."""

from story import PLAN, Step, Story, tell

STORY = Story(
    note="B",
    title="hipBLAS cannot allocate a handle, with two cards",
    example="futures",
    machine="rx7900xt-pair",
    took="more than 15 debugging sessions, 300 sources and a rebuilt container",
    by_hand="""
Kept seven variables in the Dockerfile
  `env` says of each what it does: four of seven do nothing, one does so in part
Concluded that torch 2.5.1 and ROCm 6.2 do not match
  `doctor` does not say so: that release was built for the pair
Checked six criteria by hand
  `done_when` in the job file; the run is not done without them
Saw that both cards were busy
  the log shows steps and processor time of each rank
""",
    job="""
total = { steps = 182 }
deadline = "7d"
""",
    data="--rows 60000",
    launcher="torchrun --standalone --nproc-per-node 2",
    small=(
        "--epochs 2 --folds 2 --learning_rate 0.001"
        " --hidden_layers 32,16 --use_mixed_precision --batch_size 64 --checkpoint_every 10"
    ),
    full=(
        "--epochs 40 --folds 8 --learning_rate 0.001"
        " --hidden_layers 32,16 --use_mixed_precision --batch_size 64 --checkpoint_every 100"
    ),
    ends="gpu or gpu+single-gpu",
    faults=(("blas", 1, 1),),
    before=(
        Step(
            words="doctor",
            lines=("iommu-not-passthrough", "Training should work on 2 x Radeon RX 7900 XT"),
        ),
        Step(
            words="env",
            lines=("unknown 1, no effect 3, partly 1, acts 2",),
            code=1,
        ),
        Step(
            words="explain HIPBLAS_STATUS_ALLOC_FAILED",
            lines=("It is not a check of the ROCm version",),
        ),
        Step(
            words=PLAN[0].words,
            lines=PLAN[0].lines,
            why="The options of the note's machine. The fault is injected once, so whatever is"
            " tried next seems to help. That says nothing about the cause on your machine.",
        ),
        PLAN[1],
    ),
    run=(r"done +(about )?\d+ steps",),
    after=(
        Step(
            words="run --yes --name both --resume never -- torchrun --standalone --nproc-per-node 2"
            " train.py --epochs 1 --folds 2 --hidden_layers 32,16 --batch_size 64",
            lines=(r"rank [01]: \d+ steps",),
            why="Without the fault: at its end, a rank prints its steps and its processor time.",
        ),
    ),
)

if __name__ == "__main__":
    tell(STORY)
