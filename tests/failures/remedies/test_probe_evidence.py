"""What probes saw decides which remedy comes first."""

from __future__ import annotations

from rocsteady.failures.probe_evidence import supported
from rocsteady.failures.remedy import load_remedies
from rocsteady.model import Observation, ProbeOutcome

NOW = "GPU gfx1100; torch 2.10.0"


def seen(
    probe: str, variant: str, outcome: ProbeOutcome, *, at: float = 1.0, software: str = NOW
) -> Observation:
    return Observation(
        probe=probe,
        variant=variant,
        outcome=outcome,
        tries=1,
        seconds=1.0,
        at=at,
        software=software,
    )


FLASH = seen("attention-backward", "flash", ProbeOutcome.HANG)
MATH = seen("attention-backward", "math", ProbeOutcome.OK)
FORK = seen("loader", "2 workers, fork", ProbeOutcome.HANG)
INLINE = seen("loader", "0 workers", ProbeOutcome.OK)
COMPILE = seen("compile", "", ProbeOutcome.CRASH)


def test_each_speaks_for_the_remedy_that_avoids_it() -> None:
    assert supported([FLASH, MATH], NOW) == ("attention-math",)
    assert supported([FORK, INLINE], NOW) == ("loader-inline",)
    assert supported([COMPILE], NOW) == ("compile-off",)
    assert set(supported([FLASH, MATH, FORK, INLINE, COMPILE], NOW)) <= set(load_remedies())


def test_without_the_other_half_nothing_is_said() -> None:
    assert supported([FLASH], NOW) == ()
    assert supported([MATH], NOW) == ()
    assert supported([FLASH, seen("attention-backward", "math", ProbeOutcome.CRASH)], NOW) == ()
    assert (
        supported([seen("loader", "2 workers, forkserver", ProbeOutcome.HANG), INLINE], NOW) == ()
    )


def test_only_the_newest_of_todays_software_counts() -> None:
    mended = seen("attention-backward", "flash", ProbeOutcome.OK, at=2.0)
    older = seen("attention-backward", "flash", ProbeOutcome.HANG, software="torch 2.9.1")

    assert supported([mended, FLASH, MATH], NOW) == ()
    assert supported([older, MATH], NOW) == ()
