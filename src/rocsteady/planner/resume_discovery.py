"""How a script goes on from a checkpoint, from what it wrote in a short run and what it takes."""

from __future__ import annotations

from rocsteady.inside import wire
from rocsteady.job.values import CHECKPOINT, Resume
from rocsteady.model import Value
from rocsteady.planner.script_facts import ScriptFacts, resume_option
from rocsteady.planner.trial_result import TrialResult
from rocsteady.wording import duration

BY_ITSELF = {wire.RESUME_FROM: CHECKPOINT}  # for rocsteady's own library; others do not read it


class GoingOn(Value, frozen=True, kw_only=True):
    """How to go on, and what says so."""

    resume: Resume | None = None
    why: str
    written: tuple[str, ...] = ()  # patterns of checkpoints


def going_on(result: TrialResult, facts: ScriptFacts) -> GoingOn:
    """Return how the script goes on; only what was seen to be written is gone on from."""
    written, option = result.watched.checkpoints or result.watched.found, resume_option(facts)
    seen = "Written in the short run" if result.watched.checkpoints else "Found in this folder"
    if result.watched.resume is not None:
        why = "The script reports that it saves and resumes on its own."
        return GoingOn(resume=result.watched.resume, why=why)
    way = f"{option.flags[-1]} in {facts.name}, line {option.line}" if option else ""
    if not option and facts.goes_on:
        way = f"the Trainer resumes on its own ({facts.name}, line {facts.goes_on})"
    if not written:
        seconds = f"No checkpoint was written in the {duration(result.seconds)} of the short run"
        told = (
            f"How the script resumes: {way}. Name the checkpoints it can resume from."
            if way
            else ""
        )
        return GoingOn(why=f"{seconds}. {told}".rstrip())
    if not way:
        why = f"{seen}: {', '.join(written)}. No option to resume from them was found."
        return GoingOn(why=why, written=written)
    why = f"How the script resumes: {way}. {seen}. Resuming was not tested."
    if option is None:
        return GoingOn(resume=Resume(environment=BY_ITSELF, checkpoints=written), why=why)
    flag = option.flags[-1]
    if option.alone:
        resume = Resume(arguments=(flag,), environment=BY_ITSELF, checkpoints=written)
    else:
        resume = Resume(arguments=(flag, CHECKPOINT), checkpoints=written)
    return GoingOn(resume=resume, why=why)
