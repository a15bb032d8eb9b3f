"""Each field note replayed through ``rocsteady plan``: the first row is the right decision.

The machine is recorded, the script is the example of the same kind, trials are real, the CPU stands
in for the GPU, and what fails below the script is faulty.py. docs/field-notes.md has the notes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from replays.earlier import Earlier, leave_death, leave_runs
from replays.replay import HERE, MACHINES, Replay, named

from rocsteady.model import Risk, Strategy
from rocsteady.plan.values import Basis
from rocsteady.run.job import FILE
from rocsteady.run.job.job_file import read_job
from rocsteady.run.job.stages import with_variant

pytestmark = pytest.mark.slow
ALL = "ROCSTEADY_TEST_ALL_NOTES"
beside = pytest.mark.skipif(ALL not in os.environ, reason=f"{ALL}=1 replays notes B and D too")

INLINE = Strategy(workers=0)
FOLKLORE = (  # what the notes say and sources contradict, or have no source for
    r"inference only", r"too (?:large|many) for", r"95 % of native", r"DirectML cannot",
    r"line 322", r"incompatible", r"ROCm (?:>=|6\.3)", r"2\.4\.1\S* (?:for|with) ROCm",
    r"must run alone", r"known PyTorch limitation", r"fundamentally", r"proven",
    r"HCCL", r"300 %", r"dropped", r"ROCm 4\.5", r"FlashAttention",
    r"HSA_XNACK=1(?! does)", r"ROCM_ALLOW_HIDDEN", r"HIP_FORCE_DEV_KERNARG=1",
    r"HSA_OVERRIDE_GFX_VERSION=(?!10\.3\.0, but)", r"expandable_segments:True(?! is set)",
)  # fmt: skip


def check_screen(screen: str) -> None:
    """See that it fits, and repeats nothing that is not so."""
    assert max(map(len, screen.splitlines())) <= 80, screen
    said = " ".join(screen.split())
    assert [words for words in FOLKLORE if re.search(words, said)] == [], said


@pytest.fixture
def gfx1010(tmp_path: Path) -> Path:
    """Note C names no torch: here it is one with code for the card, and nothing is overridden."""
    text = (MACHINES / "rx5700xt-override.json").read_text()
    for old, new in (("2.5.1+rocm6.2", "2.10.0+rocm7.14.0"), ("gfx1030", "gfx1010")):
        text = text.replace(old, new)
    recording = json.loads(text)
    del recording["environment"]["HSA_OVERRIDE_GFX_VERSION"]
    path = tmp_path / "gfx1010.json"
    path.write_text(json.dumps(recording))
    return path


def test_note_a_a_backward_pass_that_hangs_on_windows(replay: Replay) -> None:
    """By deadline: the CPU, the variant with 0.7 M parameters, or WSL2."""
    world = ("--episode_length", "3", "--prey", "4", "--predators", "3")
    replay.lay_out("predator_prey", "backward-hangs", "--embedding", "256", *world)
    replay.on("rx9070xt-windows")
    variant = (
        '[variants.small]\narguments = ["--embedding", "128", "--heads", "4", "--hidden", "256"]\n'
        'words = "0.7 M parameters"\n'
    )
    firsts = []
    plan = None
    for deadline in ("1d", "9h", "1h 45m"):
        replay.job(f'total = {{ steps = 90000 }}\ndeadline = "{deadline}"\n{variant}')
        check_screen(replay.plan("--within", "75s"))
        plan = replay.values()
        firsts.append(plan.options[0].id)
        for name in ("gpu", "gpu+clean"):
            assert named(plan.ruled_out, name).rests_on[0].startswith("rx9070xt-windows-hang: ")
        assert '"GPU, unchanged" is ruled out (rx9070xt-windows-hang' in plan.take

    assert plan is not None
    assert firsts == ["cpu", "variant-small", "wsl2"]
    cleaned = " ".join(named(plan.ruled_out, "gpu+clean").rests_on)
    assert "serialisation-left-on" in cleaned
    assert "hsa-variables-on-windows" in cleaned
    wsl2 = named(plan.options, "wsl2")
    assert (wsl2.basis, wsl2.risk, wsl2.setup) == (Basis.ESTIMATE, Risk.MEDIUM, (30, 60))
    assert "directml" in [option.id for option in plan.ruled_out]
    replay.follow(named(plan.options, "cpu"))


@beside
def test_note_b_a_handle_that_is_refused_under_variables(replay: Replay) -> None:
    """One GPU with cleaned variables now; DDP as a row that needs a change in the script."""
    arguments = ("--epochs", "9999", "--hidden_layers", "64,32")
    replay.lay_out("futures", "no-handle", *arguments)
    replay.make_data("--rows", "60000")
    replay.on("rx7900xt-pair")
    replay.job('total = { steps = 2000000 }\ndeadline = "7d"\n')
    check_screen(replay.plan("--within", "75s"))
    plan = replay.values()

    first = plan.options[0]
    assert first.id == "gpu+one"
    assert first.strategy == Strategy(gpus=(0,), variables={"PYTORCH_HIP_ALLOC_CONF": None})
    assert any(reason.startswith("expandable-no-effect: ") for reason in first.rests_on)
    assert "trial failed with blas-handle-failed" in named(plan.ruled_out, "gpu").rests_on[0]
    assert "blas-handle-failed" in plan.take
    ddp = named(plan.options, "ddp")
    assert ddp.basis is Basis.ESTIMATE
    assert ddp.changes.startswith("script: ")
    assert "data-parallel" in [option.id for option in plan.ruled_out]
    replay.follow(first)


def test_note_c_loader_processes_that_hang_now_and_then(replay: Replay, gfx1010: Path) -> None:
    """The GPU with the loader remedy, with an end and a buffer: 3 hangs in 22,616 batches."""
    small = ("--width", "4", "--batch_size", "4")
    replay.lay_out("detector", "busy-gpu", "--epochs", "9999", *small)
    replay.make_data("--train", "64", "--held_out", "8")
    replay.on(gfx1010)
    replay.job('total = { steps = 1970000 }\ndeadline = "15d"\n')
    hang = "hang-in-loader"
    leave_runs(
        replay.folder,
        replay.state,
        Earlier(2_574, 1_100, hang),
        Earlier(4_886, 2_050, hang),
        Earlier(15_156, 6_320, hang),
        Earlier(904, 430, strategy=INLINE, remedy="loader-inline"),
    )
    screen = replay.plan("--within", "60s")
    check_screen(screen)
    plan = replay.values()

    first, as_is = plan.options[0], named(plan.options, "gpu")
    assert (first.id, first.strategy) == ("gpu+loader-inline", INLINE)
    assert re.search(r"0 failures in (9\d\d|1,\d\d\d) steps", first.rests_on[0])
    assert re.search(r"3 failures in 2[23],\d\d\d steps here \(hang-in-loader\)", as_is.rests_on[0])
    assert as_is.risk is Risk.MEDIUM
    assert "had 3 failures in" in plan.take
    assert re.search(r"finishes \d+ d (\d+ h )?before the deadline", " ".join(screen.split()))
    assert first.finish is not None
    assert first.finish.early < first.finish.seconds < first.finish.late
    replay.follow(first)


@beside
def test_note_d_memory_under_variables_that_cancel_each_other(replay: Replay) -> None:
    """Cleaned variables, and fresh processes from checkpoints for what is left of it."""
    arguments = ("--epochs", "9999", "--hidden_layers", "64,32", "--checkpoint_every", "10")
    replay.lay_out("futures", "fragments", *arguments)
    replay.make_data("--rows", "60000")
    replay.on("rx7900xt-allocator")
    replay.job('total = { steps = 20000000 }\ndeadline = "7d"\n')
    names = ("PYTORCH_NO_HIP_MEMORY_CACHING", "PYTORCH_HIP_ALLOC_CONF", "MIOPEN_DISABLE_CACHE")
    clean = Strategy(
        variables=dict.fromkeys((*names, "MIOPEN_USER_DB_PATH", "AMD_SERIALIZE_KERNEL"))
    )
    out = "oom-fragmentation"
    leave_runs(replay.folder, replay.state, Earlier(400_000, 7_000, out, clean))
    check_screen(replay.plan("--within", "75s"))
    plan = replay.values()

    first = plan.options[0]
    assert (first.id, first.strategy) == ("gpu+clean", clean)
    assert re.search(r"1 failure in 40\d,\d{3} steps here \(oom-frag", first.rests_on[0])
    assert "a new process resumes from the checkpoint" in first.rests_on[0]
    reasons = {reason.split(": ")[0] for reason in first.rests_on}
    assert {"caching-off", "serialisation-left-on", "miopen-cache-lost"} <= reasons
    assert first.finish is not None
    assert first.finish.failures > 0.5
    checkpointing = named(plan.options, "gradient-checkpointing")
    assert checkpointing.changes.startswith("script: ")
    assert {"older-rocm", "pruning"} <= {option.id for option in plan.ruled_out}
    replay.follow(first)


def test_note_d_a_script_with_our_loop_trains_in_smaller_parts(replay: Replay) -> None:
    """The micro-batch that fits is found in the trial, and the row says so."""
    shutil.copy(HERE / "looped.py", replay.folder)
    replay.on("rx7900xtx")
    replay.lead(["looped.py"], library=True)
    replay.job('total = { steps = 100000 }\ndeadline = "7d"\n', resumes=False)
    check_screen(replay.plan("--within", "16s"))
    first = replay.values().options[0]

    assert (first.id, first.strategy) == ("gpu", Strategy())
    assert "batches of 64 in micro-batches of 16" in first.rests_on[0]


def test_note_e_a_machine_that_went_down(replay: Replay) -> None:
    """The CPU, or a rented card where that is not in time; never the GPU again."""
    replay.lay_out("eeg", "none", "--pretrain_epochs", "9999")
    replay.make_data("--subjects", "10", "--channels", "16")
    replay.on("rx5700xt-override")
    firsts: list[str] = []
    plan = None
    for deadline in ("90d", "12h"):
        replay.job(f'total = {{ steps = 900000 }}\ndeadline = "{deadline}"\nbudget = 25\n')
        if not firsts:
            leave_death(replay.folder, replay.state)
        check_screen(replay.plan("--within", "30s"))
        plan = replay.values()
        firsts.append(plan.options[0].id)
        gpu = [option for option in plan.ruled_out if option.id.startswith("gpu")]
        assert gpu
        assert all(option.rests_on[0].startswith("machine-went-down: ") for option in gpu)
        assert "machine-went-down" in plan.take
        if plan.options[0].basis is Basis.TRIAL:
            replay.follow(plan.options[0])

    assert plan is not None
    assert firsts[0].startswith("cpu")
    assert firsts[1].startswith("cloud-")
    rented = plan.options[0]
    assert rented.price is not None
    assert rented.cost is not None
    assert {option.id for option in plan.ruled_out} >= {"older-rocm"}


def test_a_trial_of_a_variant_that_took_the_machine_down_is_known_to_the_very_next_plan(
    replay: Replay,
) -> None:
    replay.on("rx5700xt-override")
    replay.lead(["train.py"])
    replay.job('total = { steps = 9 }\n[variants.small]\narguments = ["--small"]\n')
    of = with_variant(read_job(replay.folder / FILE).job, "small").command
    leave_death(replay.folder, replay.state, in_trial=of)

    for _ in range(2):  # also when what is left of it was removed
        out = [
            option
            for option in replay.values("--no-trials").ruled_out
            if option.id.startswith("gpu")
        ]
        assert out
        assert all(option.rests_on[0].startswith("machine-went-down: ") for option in out)
