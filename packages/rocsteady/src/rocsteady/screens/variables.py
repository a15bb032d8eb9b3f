"""What each variable does, one below the other."""

from __future__ import annotations

from collections import Counter

from rocsteady.doctor.knowledge.values import Effect
from rocsteady.doctor.values import VariableReview, VariableVerdict
from rocsteady.screens.text_page import BOLD, DIM, GREEN, RED, YELLOW, Page
from rocsteady.wording import plural

COLUMN = 11
NO_GPU = (
    "Effects that depend on the GPU cannot be judged here. To judge them for another machine:"
    " rocsteady doctor env FILE --root RECORDING"
)
STYLES = {
    Effect.HARMS: f"{BOLD} {RED}",
    Effect.CANCELS: YELLOW,
    Effect.CANCELLED: YELLOW,
    Effect.UNKNOWN: YELLOW,
    Effect.INVALID: YELLOW,
    Effect.NONE: DIM,
    Effect.PARTLY: YELLOW,
    Effect.DEBUGGING: YELLOW,
    Effect.DEPENDS: DIM,
    Effect.HELPS: GREEN,
    Effect.ACTS: GREEN,
}


def render_variables(review: VariableReview, *, width: int, colour: bool) -> str:
    page = Page(width, colour=colour)
    gpus = ", ".join(review.machine.gpus) or "a machine without an AMD GPU"
    page.paragraph(f"{review.file or 'Variables in effect'}, judged for {gpus}", style=BOLD)
    page.paragraph(f"PyTorch {review.machine.torch or 'not found'}; {review.machine.system}")
    if not review.machine.gpus:
        page.paragraph(NO_GPU)
    page.line()
    for verdict in review.variables:
        _verdict(page, verdict)
    if review.variables:
        page.line()
    page.paragraph(closing_sentence(review), style=BOLD)
    return str(page)


def closing_sentence(review: VariableReview) -> str:
    others = ""
    if review.others:
        counted = plural(review.others, "other variable does", "other variables do")
        others = f" {counted} not belong to ROCm or PyTorch."
    if not review.variables:
        return f"No ROCm or PyTorch variable is set.{others}"
    counts = Counter(verdict.effect for verdict in review.variables)
    told = ", ".join(f"{counts[effect]} {effect.value}" for effect in Effect if counts[effect])
    return f"{plural(len(review.variables), 'variable')}: {told}.{others}"


def _verdict(page: Page, verdict: VariableVerdict) -> None:
    value = "" if verdict.value is None else f"={verdict.value}"
    places = ", ".join(place for place in (verdict.part, verdict.place) if place)
    place = f" ({places})" if places else ""
    label = verdict.effect.value
    page.styled_line(
        (label, STYLES[verdict.effect]),
        (" " * (COLUMN - len(label)), ""),
        (f"{verdict.name}{value}", BOLD),
        (place, DIM),
    )
    for reason in verdict.reasons:
        rule = f" ({reason.rule})" if reason.rule else ""
        page.paragraph(f"{reason.text}{rule}", indent=COLUMN)
