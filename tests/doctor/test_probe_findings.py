"""What probes saw becomes findings; of other software it is a note."""

from __future__ import annotations

import time

from msgspec.structs import replace

from rocsteady.doctor.diagnosis import probe_findings
from rocsteady.doctor.knowledge.values import Severity
from rocsteady.model import Observation, ProbeOutcome

NOW = "GPU gfx1100; driver 6.8; torch 2.10.0; Python 3.12"
BEFORE = "GPU gfx1100; driver 6.8; torch 2.9.1; Python 3.12"
AT = time.mktime((2026, 11, 15, 12, 0, 0, 0, 0, -1))
FLASH = Observation(
    probe="attention-backward",
    variant="flash",
    outcome=ProbeOutcome.HANG,
    tries=0,
    seconds=10.0,
    place="_scaled_dot_product_flash_attention_backward",
    software=NOW,
    at=AT,
)


def told(*observations: Observation) -> list[tuple[Severity, str]]:
    return [(each.severity, each.summary) for each in probe_findings(observations, NOW)]


def test_what_went_wrong_last_time_puts_training_at_risk() -> None:
    (finding,) = probe_findings([FLASH], NOW)

    assert finding.rule == "seen-by-probe"
    assert finding.severity is Severity.RISKS
    assert finding.summary == (
        "Seen by rocsteady probe on 2026-11-15: attention-backward flash hung at try 1, in"
        " _scaled_dot_product_flash_attention_backward."
    )
    assert finding.confirmed_on == ("this machine",)
    assert finding.fix.commands == (
        "rocsteady probe attention-backward",
        "rocsteady probe --explain attention-backward",
    )


def test_what_went_well_since_and_what_was_not_run_is_not_a_finding() -> None:
    well = replace(FLASH, outcome=ProbeOutcome.OK, at=AT + 1)
    not_run = replace(FLASH, variant="math", outcome=ProbeOutcome.NOT_RUN)

    assert told(FLASH, well, not_run) == []


def test_of_other_software_it_is_a_note_that_says_what_changed() -> None:
    ((severity, summary),) = told(replace(FLASH, software=BEFORE, place=""))

    assert severity is Severity.NOTES
    assert summary == (
        "Seen by rocsteady probe on 2026-11-15: attention-backward flash hung at try 1."
        " That was with torch 2.9.1, now 2.10.0."
    )


def test_todays_software_counts_before_what_was_seen_later_with_another() -> None:
    well = replace(FLASH, outcome=ProbeOutcome.OK)
    later = replace(FLASH, software=BEFORE, at=AT + 5)

    assert told(well, later) == []


def test_variants_of_one_probe_are_one_finding() -> None:
    efficient = replace(FLASH, variant="efficient", at=AT + 1, place="")

    assert told(FLASH, efficient) == [
        (
            Severity.RISKS,
            (
                "Seen by rocsteady probe on 2026-11-15: attention-backward efficient hung at try 1."
                " So did 1 other variant of it."
            ),
        )
    ]


def test_a_trial_of_some_script_says_nothing_of_the_machine() -> None:
    assert told(replace(FLASH, probe="trial", variant="gpu", outcome=ProbeOutcome.EXCEPTION)) == []
