"""The screen of a plan and of one of its options; whole screens are in ``expected/``."""

from __future__ import annotations

import json
import re
from datetime import UTC
from pathlib import Path

import jsonschema
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from json_schemas import plan_schema
from msgspec.structs import replace
from samples import PLAN

from rocsteady.model import Risk
from rocsteady.plan.values import Basis, Finish, Limit, Option, Pace, Plan, Price
from rocsteady.screens.plan import chance, clean, cost, limits, pace, render_plan, setup
from rocsteady.screens.screen import Page

H, D = 3600.0, 86400.0
NOTE_A = msgspec.json.decode((Path(__file__).parent / "plans/note-a.json").read_bytes(), type=Plan)


def option(number: int = 1, title: str = "a", basis: Basis = Basis.TRIAL, **more: object) -> Option:
    do = f"rocsteady run --plan {number}" if basis is Basis.TRIAL else ""
    known = {"number": number, "title": title, "id": title, "basis": basis, "do": do, **more}
    return Option(**known)  # type: ignore[arg-type] # as the test says


def at(rate: float) -> Pace:
    steps = max(2, round(40 * rate))
    seconds = steps / rate if rate else 9
    return Pace(steps=steps, seconds=seconds, rate=rate, low=0, high=9, starting=1)


def ends(seconds: float, off: float, in_time: float) -> Finish:
    return Finish(seconds=seconds, early=seconds - off, late=seconds + off, in_time=in_time)


def shown(plan: Plan, width: int = 80, *, later: float = 0.0) -> str:
    return render_plan(plan, now=plan.made + later, page=Page(width, colour=False), zone=UTC)


def words(plan: Plan, *, later: float = 0.0) -> str:
    return " ".join(shown(plan, later=later).split())


def test_the_documentation_shows_a_real_plan() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "plan.md"

    assert f"```text\n{shown(NOTE_A)}```\n" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [80, 120])
def test_an_ordinary_plan_fits_the_first_screen(width: int) -> None:
    assert len(shown(PLAN, width).splitlines()) <= 24


def test_what_is_not_known_has_no_column_and_says_what_to_set() -> None:
    endless = replace(
        NOTE_A, left=None, options=[replace(it, finish=None) for it in NOTE_A.options]
    )
    for plan, lacks, sets in (
        (endless, ("finishes", "on time"), "Set total in rocsteady.toml"),
        (replace(NOTE_A, deadline=None), (" on time ",), "deadline in rocsteady.toml"),
    ):
        table = shown(plan).partition("\n\n")[2].splitlines()[0]
        assert not [column for column in lacks if column in table]
        assert sets in words(plan)


def test_if_all_is_ruled_out_it_says_so_and_names_no_command() -> None:
    plan = replace(NOTE_A, options=(), not_tried=(), take="", limits=(), warnings=())

    assert words(plan).endswith("No option is left: all are ruled out.")


def test_options_with_the_same_reason_are_named_together_and_a_long_reason_is_cut() -> None:
    def out(title: str, why: str) -> Option:
        return option(0, title, Basis.RULED_OUT, rests_on=(why,))

    hung = [out(f"GPU {n}", "trial failed with hang-in-backward") for n in (1, 2, 3)]
    others = [out(f"way {n}", f"reason {n} {'and so on ' * 9}") for n in (4, 5, 6)]

    screen = words(replace(NOTE_A, ruled_out=(*hung, *others)))
    assert "Ruled out: GPU 1 and 2 more (trial failed with hang-in-backward); way 4 (" in screen
    assert "(reason 5 and so on and so on and so on and so on and so on...); 1 more." in screen


ANY_SIZE = """\
     option                        steps/s  finishes  on time          cost
  1  fast                           12,000  in 8 s      >99 %         $0.02
     trial: 0 failures in 480,000 steps
  2  xxxxxxxxxxxxxxxxxxxxxxxxxxxx   0.0003  Nov 2029     <1 %  $1,100-1,200
     and a long title
     trial: 0 failures in 2 steps; 0.5-33 h to set up

Recommended: option 1.
  rocsteady run --plan 1           Details: rocsteady plan --details 1
"""


def test_figures_of_any_size_stand_in_their_columns() -> None:
    options = (
        option(1, "fast", pace=at(12_000), finish=ends(8, 1, 1.0), cost=(0.02, 0.02)),
        option(
            2,
            f"{'x' * 28} and a long title",
            pace=at(0.0003),
            finish=ends(3 * 365 * D, 100 * D, 0.0),
            setup=(30, 2_000),
            cost=(1_100, 1_200),
        ),
    )
    take = "Recommended: option 1."
    plan = replace(
        NOTE_A, options=options, take=take, ruled_out=(), not_tried=(), limits=(), warnings=()
    )

    assert shown(plan, 75).partition("\n\n")[2] == ANY_SIZE


def test_a_command_is_never_broken() -> None:
    command = f"rocsteady plan --export container --to {'a folder/' * 9}"

    lines = shown(replace(NOTE_A, options=(option(do=command),)), 60).splitlines()

    assert f"  {command}" in lines


def test_a_plan_that_is_shown_later_says_how_old_it_is() -> None:
    assert ", 5 h ago." in words(NOTE_A, later=5 * H)
    assert "This plan is 5 h old: a run that starts now" in words(NOTE_A, later=5 * H)


@pytest.mark.parametrize(
    ("parts", "summary"),
    [
        (
            (Limit(part="other ranks", share=0.26, best="fewer GPUs.", gain=1.04),),
            "waiting for other ranks takes the most time. Most to gain: fewer GPUs.",
        ),
        (
            (
                Limit(part="compile", share=0.5),
                Limit(part="compute", share=0.45, best="a GPU", gain=12.4),
            ),
            "compilation is the bottleneck. Most to gain: a GPU (up to 12 times as fast).",
        ),
    ],
)
def test_where_the_time_goes(parts: tuple[Limit, ...], summary: str) -> None:
    assert limits(replace(NOTE_A, limits=parts)).endswith(summary)


def test_where_the_gpu_was_seen_to_wait_the_plan_says_how_busy_it_was() -> None:
    busy = option(pace=replace(at(0.02), gpu_busy=31.4, gpu_memory=3 * 2**30))
    waits = Limit(part="simulation", share=0.68)

    screen = words(replace(NOTE_A, options=(busy,), limits=(waits,)))

    assert " 31 % " in screen
    assert "The GPU was busy 31 % of the time and idle for the rest." in screen
    assert "GPU was busy" not in words(replace(NOTE_A, limits=(waits,)))


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
    assert shown(replace(NOTE_A, command=command, folder="/home/me/detector")).startswith(
        f"{name}: "
    )


def test_its_json_keeps_to_the_schema_and_something_else_does_not() -> None:
    document = json.loads(msgspec.json.encode(NOTE_A))

    jsonschema.validate(document, plan_schema())
    for field, value in (("version", 2), ("options", None), ("left", "much")):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**document, field: value}, plan_schema())


@pytest.mark.parametrize(
    ("rate", "measured", "estimated"),
    [
        (12_000.4, "12,000", "~12,000"),
        (1_234.0, "1,234", "~1,200"),
        (99.96, "100", "~100"),
        (23.84, "23.8", "~24"),
        (9.996, "10.0", "~10"),
        (9.04, "9.04", "~9"),
        (0.1, "0.10", "~0.1"),
        (0.19, "0.19", "~0.19"),
        (0.0212, "0.021", "~0.021"),
        (0.0003, "0.0003", "~0.0003"),
        (0.00003, "<0.0001", "<0.0001"),
        (0.0, "-", "-"),
    ],
)
def test_a_pace_has_two_or_three_digits_and_an_estimate_a_mark(
    rate: float, measured: str, estimated: str
) -> None:
    assert pace(option(pace=at(rate))) == measured
    assert pace(option(basis=Basis.ESTIMATE, pace=at(rate))) == estimated


@pytest.mark.parametrize(
    ("dollars", "text"),
    [
        (None, "-"),
        ((0, 0), "-"),
        ((0.02, 0.02), "~$0.02"),
        ((0.001, 0.001), "<$0.01"),
        ((0.00096, 0.3), "$0-0.30"),
        ((3, 6), "$3-6"),
        ((0.5, 3.5), "$0.50-3.50"),
        ((24.6, 25.3), "~$25"),
        ((1_100, 1_200), "$1,100-1,200"),
    ],
)
def test_a_cost(dollars: tuple[float, float] | None, text: str) -> None:
    assert cost(option(basis=Basis.ESTIMATE, cost=dollars)) == text


@pytest.mark.parametrize(
    ("minutes", "text"),
    [
        (None, "-"),
        ((0, 0), "-"),
        ((5, 5), "5 min"),
        ((30, 60), "30-60 min"),
        ((60, 120), "1-2 h"),
        ((30, 2_000), "0.5-33 h"),
        ((1_440, 4_320), "1-3 d"),
    ],
)
def test_the_work_by_hand(minutes: tuple[float, float] | None, text: str) -> None:
    assert setup(minutes) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, ">99 %"), (0.994, "99 %"), (0.5, "50 %"), (0.01, "1 %"), (0.0, "<1 %")],
)
def test_a_chance_is_never_certain(share: float, text: str) -> None:
    assert chance(share) == text


def test_text_of_others_moves_no_cursor() -> None:
    assert clean("a\n b\x1b[31m\tc") == "a b\\x1b[31m c"


WORDS = st.text("ab-,.", max_size=70) | st.lists(st.text("abc.", max_size=12)).map(" ".join)
SECONDS = st.floats(0, 1e13) | st.just(float("inf"))
SPANS = st.tuples(st.floats(0, 5_000), st.floats(0, 100_000)) | st.none()
FINISHES = st.none() | st.builds(
    Finish,
    seconds=SECONDS,
    early=SECONDS,
    late=SECONDS,
    in_time=st.floats(0, 1) | st.none(),
    failures=st.floats(0, 1e6),
    lost=st.floats(0, 1),
)
OPTIONS = st.builds(
    Option,
    number=st.integers(1, 99),
    id=WORDS,
    title=WORDS.filter(str.strip),
    basis=st.sampled_from(Basis),
    pace=st.none()
    | st.builds(
        Pace,
        steps=st.integers(0),
        seconds=st.floats(0, 1e5),
        rate=st.floats(0, 1e6),
        low=st.just(0.0),
        high=st.just(1e6),
        starting=st.just(9.0),
    ),
    finish=FINISHES,
    setup=SPANS,
    cost=SPANS,
    price=st.none() | st.builds(Price, dollars=st.floats(0, 99), as_of=WORDS, source=WORDS),
    risk=st.sampled_from(Risk),
    rests_on=st.lists(WORDS, max_size=3).map(tuple),
    sources=st.lists(WORDS, max_size=2).map(tuple),
    changes=WORDS,
    do=st.sampled_from(("", "rocsteady run --plan 3")),
)
PLANS = st.builds(
    Plan,
    rocsteady=st.just("0.1"),
    made=st.floats(0, 4e9),
    command=st.lists(WORDS, max_size=3).map(tuple),
    folder=WORDS,
    software=WORDS,
    total=st.none() | st.integers(0),
    left=st.none() | st.integers(0, 10**12),
    deadline=st.none() | st.floats(0, 4e9),
    budget=st.none() | st.floats(0, 9_999),
    trials=st.integers(0, 99),
    trial_seconds=st.floats(0, 1e5),
    options=st.lists(OPTIONS, max_size=4).map(tuple),
    ruled_out=st.lists(OPTIONS, max_size=3).map(tuple),
    take=WORDS,
    limits=st.lists(
        st.builds(
            Limit, part=WORDS, share=st.floats(0, 1), where=WORDS, best=WORDS, gain=st.floats(1, 99)
        ),
        max_size=5,
    ).map(tuple),
    warnings=st.lists(WORDS, max_size=2).map(tuple),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PLANS, st.sampled_from((60, 80, 100, 120)))
def test_any_plan_fits_its_terminal_in_ascii_with_or_without_colour(plan: Plan, width: int) -> None:
    now = plan.made + 60
    page = render_plan(plan, now=now, page=Page(width, colour=False), zone=UTC)
    coloured = render_plan(plan, now=now, page=Page(width, colour=True), zone=UTC)

    assert page.isascii()
    assert "\x1b" not in page
    assert [line.rstrip() for line in re.sub(r"\x1b\[[\d;]*m", "", coloured).splitlines()] == (
        page.splitlines()
    )
    for line in page.splitlines():
        whole = len(line.split()) == 1 or line.startswith("  rocsteady ")  # a word, or a command
        assert len(line) <= width or whole
    for each in plan.options:
        assert re.search(rf"^ {{2,3}}{each.number}  \S", page, re.MULTILINE)
    shown = plan.trials or plan.options == () or plan.options[0].basis is not Basis.ESTIMATE
    assert plan.options == () or not shown or plan.options[0].do in page


def test_trials_of_an_earlier_plan_say_how_old_they_are() -> None:
    earlier = replace(PLAN, tried=PLAN.made - 3 * H)

    assert "took 160 s, 3 h ago" in words(earlier).replace("2 min 40 s", "160 s")
    assert "ago" not in words(PLAN).partition("took")[2][:30]
