"""The screen of a plan. All figures in this file are invented to show its shape.

Those of plans/ are of real plans.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path

import jsonschema
import msgspec
import pytest
from json_schemas import plan_schema

from rocsteady.model import Strategy
from rocsteady.plan.values import Basis, Finish, Limit, Option, Pace, Plan, Price, Risk
from rocsteady.screens.plan import render_plan

H, D = 3600.0, 86400.0
MADE = datetime(2025, 11, 15, 12, 0, tzinfo=UTC).timestamp()


def measured(rate: float) -> Pace:
    steps = max(2, round(40 * rate))
    return Pace(
        steps=steps,
        seconds=steps / rate,
        rate=rate,
        low=rate * 0.98,
        high=rate * 1.02,
        starting=9.0,
    )


def ends(seconds: float, off: float, in_time: float | None = None, **more: float) -> Finish:
    return Finish(seconds=seconds, early=seconds - off, late=seconds + off, in_time=in_time, **more)


def option(number: int, title: str, basis: Basis = Basis.TRIAL, **more: object) -> Option:
    do = f"rocsteady run --plan {number}" if basis is Basis.TRIAL else ""
    known = {"id": title.lower().replace(" ", "-"), "do": do, **more}
    return Option(number=number, title=title, basis=basis, **known)  # type: ignore[arg-type] # as the test says


def ruled_out(title: str, why: str, *sources: str) -> Option:
    return option(0, title, Basis.RULED_OUT, rests_on=(why,), sources=sources)


RENTED = Price(dollars=0.34, as_of="2025-08-22", source="https://prices.example/gpus", old=True)
LONG_JOB = Plan(
    rocsteady="0.1",
    made=MADE,
    command=("python", "scripts/train.py", "--val", "False"),
    folder="/home/me/detector",
    software="gfx1010, torch 2.2",
    total=2_000_000,
    left=1_970_000,
    deadline=MADE + 15 * D + 6 * H,
    trials=4,
    trial_seconds=160,
    options=(
        option(
            1,
            "GPU, no loader processes",
            strategy=Strategy(workers=0),
            pace=measured(2.38),
            finish=ends(9 * D + 14 * H, 3 * H, 0.99),
            rests_on=("0 hangs in 95 batches: no evidence yet (22,600 needed, 2.6 h)",),
        ),
        option(
            2,
            "GPU, unchanged",
            pace=measured(2.41),
            finish=ends(9 * D + 17.5 * H, 9 * H, 0.99, failures=260.4, lost=0.028),
            risk=Risk.MEDIUM,
            failures=3,
            failed_steps=22_616,
            kinds=("hang-in-loader",),
            rests_on=("3 hangs in 22,616 batches",),
        ),
        option(
            3,
            "GPU, variant small",
            variant="small",
            pace=measured(5.1),
            finish=ends(4 * D + 11 * H, 2 * H, 0.999),
            changes="another model, 0.7 M parameters in place of 2.9 M.",
        ),
        option(
            4,
            "cloud, RTX 4090",
            Basis.ESTIMATE,
            pace=measured(9.04),
            finish=ends(3 * D, 1 * D, 0.95),
            setup=(60, 120),
            cost=(24.6, 25.3),
            price=RENTED,
            risk=Risk.MEDIUM,
            do="rocsteady plan --export skypilot",
        ),
        option(
            5,
            "CPU, bf16, 8 threads",
            pace=measured(0.19),
            finish=ends(120 * D, 5 * D, 0.0),
        ),
    ),
    ruled_out=(
        ruled_out("WSL2", "this is Linux."),
        ruled_out("two GPUs", "only one is present", "gpu.count"),
    ),
    take=(
        "Recommended: option 1. It is about as fast as the unchanged script and removes the cause"
        " of the hangs."
    ),
    limits=(
        Limit(
            part="data",
            share=0.41,
            where="dataset.py:88 __getitem__",
            best="two more workers",
            gain=1.4,
        ),
        Limit(part="compute", share=0.35),
    ),
)
NOTE_A = Plan(
    rocsteady="0.1",
    made=MADE,
    command=("python.exe", "-u", r"C:\sim\train_marl.py", "--episodes", "2000"),
    folder=r"C:\sim",
    software="gfx1201, Windows",
    total=2000,
    left=2000,
    deadline=MADE + 3 * D,
    trials=3,
    trial_seconds=131,
    options=(
        option(
            1,
            "CPU, variant small, 16 threads",
            variant="small",
            pace=measured(0.0212),
            finish=ends(26.2 * H, 1.5 * H, 0.98),
            changes="another model, 0.7 M parameters in place of 2.9 M.",
        ),
        option(
            2,
            "WSL2, the same GPU",
            Basis.ESTIMATE,
            pace=measured(0.033),
            finish=Finish(seconds=18 * H, early=13 * H, late=60 * H, in_time=0.9),
            setup=(30, 60),
            risk=Risk.MEDIUM,
            rests_on=("30 s an episode, said by a field note", "AMD lists gfx1201 for WSL"),
            do="rocsteady plan --export wsl2",
        ),
        option(
            3,
            "CPU, 16 threads",
            pace=measured(0.0026),
            finish=ends(8.9 * D, 12 * H, 0.0),
        ),
    ),
    ruled_out=(
        ruled_out(
            "GPU under native Windows",
            "the trial hung in its first backward pass, incident 1; AMD supports no training there",
            "windows-training-unsupported",
        ),
        ruled_out("DirectML", "its last release is of September 2024", "https://pypi.example/dml"),
    ),
    take="Recommended: option 1. It is the only option tried here that is on time.",
    limits=(Limit(part="simulation", share=0.68), Limit(part="compute", share=0.3)),
)
NOTE_E = Plan(
    rocsteady="0.1",
    made=MADE,
    command=("python", "-m", "eeg.train"),
    folder="/home/me/eeg",
    software="gfx1010, torch 2.5.1",
    total=40_000,
    left=40_000,
    deadline=MADE + 4 * D,
    budget=5.0,
    trials=2,
    trial_seconds=75,
    options=(
        option(
            1,
            "CPU, 12 threads",
            pace=measured(0.62),
            finish=ends(17.9 * H, 0.6 * H, 0.999),
        ),
        option(
            2,
            "cloud, RTX 4090",
            Basis.ESTIMATE,
            pace=measured(2.2),
            finish=ends(6.1 * H, 2 * H, 0.97),
            setup=(60, 120),
            cost=(3, 6),
            price=msgspec.structs.replace(RENTED, as_of="2025-11-10", old=False),
            do="rocsteady plan --export skypilot",
        ),
    ),
    ruled_out=(
        ruled_out(
            "GPU",
            "it crashed this machine, twice, at the first step",
            "wheel-lacks-arch",
        ),
    ),
    take="Recommended: option 1. It finishes tomorrow morning and costs nothing.",
    warnings=("The GPU crashed this machine; use --again to try it anyway.",),
)


def shown(plan: Plan, width: int = 80, *, later: float = 0.0, zone: tzinfo = UTC) -> str:
    return render_plan(plan, now=plan.made + later, width=width, colour=False, zone=zone)


ANY_SIZE = """\
     option                        steps/s  finishes  on time          cost
  1  fast                           12,000  in 8 s      >99 %         $0.02
     trial: 0 failures in 480,000 steps
  2  xxxxxxxxxxxxxxxxxxxxxxxxxxxx   0.0003  Nov 2028     <1 %  $1,100-1,200
     and a long title
     trial: 0 failures in 2 steps; 0.5-33 h to set up

Recommended: option 1.
  rocsteady run --plan 1           Details: rocsteady plan --explain 1
"""


@pytest.mark.parametrize("plan", [LONG_JOB, NOTE_A, NOTE_E])
@pytest.mark.parametrize("width", [80, 120])
def test_an_ordinary_plan_fits_the_first_screen(plan: Plan, width: int) -> None:
    lines = shown(plan, width).splitlines()

    assert len(lines) <= 24
    assert max(map(len, lines)) <= width


def test_the_documentation_shows_a_real_plan() -> None:
    here = Path(__file__)
    plan = msgspec.json.decode((here.parent / "plans/note-a.json").read_bytes(), type=Plan)
    pages = ("docs/reference/plan.md", "README.md")
    reference, readme = ((here.parents[2] / page).read_text(encoding="utf-8") for page in pages)

    screen = shown(plan)
    assert f"```text\n{screen}```\n" in reference
    sample = readme.partition("$ rocsteady plan\n")[2].partition("```")[0]
    assert len(sample.splitlines()) > 8
    assert all(part.strip() in screen for part in sample.split("  ...\n"))


def test_on_a_narrow_terminal_more_stands_below_its_row() -> None:
    page = shown(LONG_JOB, 60)

    assert (
        "     option                   steps/s  finishes      on time\n"
        "  1  GPU, no loader              2.38  25 Nov 02:00     99 %\n"
        "     processes\n"
        "     trial: 0 failures in 95 steps\n"
    ) in page
    assert "     cost ~$25; estimate; 1-2 h to set up; prices as of 22\n" in page


def test_what_it_is_based_on_is_a_column_where_there_is_room() -> None:
    options = tuple(msgspec.structs.replace(option, finish=None) for option in LONG_JOB.options[:3])
    plan = msgspec.structs.replace(LONG_JOB, total=None, left=None, options=options)

    assert (
        "     option                    steps/s  based on\n"
        "  1  GPU, no loader processes     2.38  trial: 0 failures in 95 steps\n"
        "  2  GPU, unchanged               2.41  3 failures in 22,616 steps\n"
        "  3  GPU, variant small           5.10  trial: 0 failures in 204 steps; changes\n"
        "                                        the model\n"
    ) in shown(plan)


def test_without_a_total_there_is_no_end_and_it_says_what_to_do() -> None:
    options = tuple(msgspec.structs.replace(option, finish=None) for option in LONG_JOB.options)
    page = shown(msgspec.structs.replace(LONG_JOB, total=None, left=None, options=options))

    assert page.startswith("train.py: unknown amount of work, deadline Sun 30 Nov 18:00")
    assert "finishes" not in page
    assert "on time" not in page
    assert "Set total in rocsteady.toml" in " ".join(page.split())


def test_without_a_deadline_there_is_no_chance_to_meet_it() -> None:
    page = shown(msgspec.structs.replace(LONG_JOB, deadline=None))

    assert page.startswith(
        "train.py: 1,970,000 steps left, no deadline. 4 trials took 2 min 40 s.\n"
    )
    assert "on time" not in page
    assert page.endswith(
        "No deadline is set. To set one: deadline in rocsteady.toml.\n"
        "Old prices: option 4 (22 Aug 2025). Check today's prices before you rent.\n"
    )


def test_if_all_is_ruled_out_it_says_so_and_names_no_command() -> None:
    plan = msgspec.structs.replace(
        NOTE_E, options=(), take="", trials=0, deadline=MADE - 3 * H, warnings=()
    )

    assert shown(plan, 120) == (
        "eeg.train: 40,000 steps left, deadline Sat 15 Nov 09:00 (3 h ago). No trials were made.\n"
        "Ruled out: GPU (it crashed this machine, twice, at the first step).\n"
        "\n"
        "No option is left: all are ruled out.\n"
    )


def test_options_with_the_same_reason_are_named_together_and_a_long_reason_is_cut() -> None:
    hung = [ruled_out(f"GPU {n}", "trial failed with hang-in-backward") for n in (1, 2, 3)]
    others = [ruled_out(f"way {n}", f"reason {n} {'and so on ' * 9}") for n in (4, 5, 6)]
    page = shown(msgspec.structs.replace(LONG_JOB, ruled_out=(*hung, *others)), 120)

    words = " ".join(page.split())
    assert "Ruled out: GPU 1 and 2 more (trial failed with hang-in-backward); way 4 (" in words
    assert "(reason 5 and so on and so on and so on and so on and so on...); 1 more." in words


def test_figures_of_any_size_stand_in_their_columns() -> None:
    options = (
        option(1, "fast", pace=measured(12_000), finish=ends(8, 1, 1.0), cost=(0.02, 0.02)),
        option(
            2,
            f"{'x' * 28} and a long title",
            pace=measured(0.0003),
            finish=ends(3 * 365 * D, 100 * D, 0.0),
            setup=(30, 2_000),
            cost=(1_100, 1_200),
        ),
    )
    take = "Recommended: option 1."
    plan = msgspec.structs.replace(LONG_JOB, options=options, take=take, ruled_out=(), limits=())

    assert shown(plan, 75).partition("\n\n")[2] == ANY_SIZE


def test_a_command_is_never_broken() -> None:
    command = f"rocsteady plan --export container --to {'a folder/' * 9}"
    options = tuple(msgspec.structs.replace(option, do=command) for option in LONG_JOB.options[:2])

    lines = shown(msgspec.structs.replace(LONG_JOB, options=options), 60).splitlines()

    assert f"  {command}" in lines


def test_the_numbers_of_25_options_stand_below_each_other() -> None:
    options = tuple(option(number, f"way {number}", pace=measured(2.0)) for number in range(1, 26))
    page = shown(msgspec.structs.replace(LONG_JOB, options=options), 100)

    lines = page.splitlines()
    assert lines[3] == "   1  way 1      2.00  trial: 0 failures in 80 steps"
    assert lines[27] == "  25  way 25     2.00  trial: 0 failures in 80 steps"


def test_a_plan_that_is_shown_later_says_how_old_it_is() -> None:
    page = shown(LONG_JOB, 120, later=5 * H)

    assert page.startswith(
        "train.py: 1,970,000 steps left, deadline Sun 30 Nov 18:00 (in 15 d 1 h). 4 trials took"
        " 2 min 40 s, 5 h ago.\n"
    )
    assert "25 Nov 02:00" in page
    assert page.endswith("This plan is 5 h old: a run that starts now finishes that much later.\n")


def test_times_are_those_of_the_zone() -> None:
    page = shown(LONG_JOB, zone=timezone(timedelta(hours=-8)))

    assert "deadline Sun 30 Nov 10:00 (in 15 d 6 h)" in page
    assert "24 Nov 18:00" in page


def test_no_part_is_called_the_bottleneck_that_takes_less_than_most() -> None:
    even = (
        Limit(part="other ranks", share=0.26, best="fewer GPUs.", gain=1.04),
        *(Limit(part=part, share=0.2) for part in ("data", "compute", "checkpoint", "evaluate")),
    )

    assert (
        "Time goes to: other ranks 26 %, data 20 %, compute 20 %, checkpoint 20 %; waiting for"
        " other ranks takes the most time. Most to gain: fewer GPUs."
    ) in " ".join(shown(msgspec.structs.replace(LONG_JOB, limits=even)).split())


def test_what_would_help_most_may_be_of_another_part_than_the_largest() -> None:
    limits = (
        Limit(part="compile", share=0.5),
        Limit(part="compute", share=0.45, best="a GPU", gain=12.4),
    )

    assert (
        "Time goes to: compile 50 %, compute 45 %; compilation is the bottleneck. Most to gain: a"
        " GPU (up to 12 times as fast)."
    ) in " ".join(shown(msgspec.structs.replace(LONG_JOB, limits=limits)).split())


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("python", "a/b/train.py", "x.py"), "train.py"),
        (("torchrun", "--nproc-per-node", "2", "-m", "pkg.train"), "pkg.train"),
        (("./go",), "go"),
        ((), "/home/me/detector"),
    ],
)
def test_the_script_has_the_name_that_people_call_it(command: tuple[str, ...], name: str) -> None:
    page = shown(msgspec.structs.replace(LONG_JOB, command=command))

    assert page.startswith(f"{name}: 1,970,000 steps left")


def test_its_json_keeps_to_the_schema_and_is_the_same_plan_again() -> None:
    for plan in (LONG_JOB, NOTE_A, NOTE_E):
        written = msgspec.json.encode(plan)

        jsonschema.validate(json.loads(written), plan_schema())
        assert msgspec.json.decode(written, type=Plan) == plan


@pytest.mark.parametrize(("field", "value"), [("version", 1), ("options", None), ("left", "much")])
def test_something_else_does_not_keep_to_it(field: str, value: object) -> None:
    document = json.loads(msgspec.json.encode(LONG_JOB))

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, field: value}, plan_schema())


def test_where_the_gpu_was_seen_to_wait_the_plan_says_how_busy_it_was() -> None:
    first, *others = NOTE_A.options
    seen = msgspec.structs.replace(measured(0.0212), gpu_busy=31.4, gpu_memory=3 * 2**30)
    simulation = Limit(part="simulation", share=0.68, where="play (train.py:61)")
    busy = msgspec.structs.replace(
        NOTE_A,
        options=(msgspec.structs.replace(first, pace=seen), *others),
        limits=(simulation,),
        ruled_out=(),
    )

    screen = render_plan(busy, now=MADE, width=100, colour=False, zone=UTC)

    assert " GPU " in screen.splitlines()[2]
    assert " 31 % " in screen
    assert "The GPU was busy 31 % of the time and idle for the rest." in " ".join(screen.split())
    assert (
        " GPU "
        not in render_plan(NOTE_A, now=MADE, width=100, colour=False, zone=UTC).splitlines()[2]
    )
