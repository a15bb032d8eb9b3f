"""How far a run has come, by the script's own counts. Pure.

Steps that a process makes are none of the job's if it makes them over again, so they count only
where the script agrees: by the step that it tells or prints, or by the number of what it saved.
"""

from __future__ import annotations

from collections.abc import Mapping

PRINTED, EPOCH, SAVED = "printed", "epoch", "saved "  # counts, by their kind; saved in a unit
SAVED_STEP = f"{SAVED}step"
READ = "read"  # when the checkpoint that led an attempt on was last written, by it or before it
ONE_OFF = {PRINTED: 1, SAVED_STEP: 1}  # one more may be another way to count the same


class ProgressCounts:
    """The most that was seen of each count."""

    def __init__(self) -> None:
        self._step = 0
        self._counts: dict[str, int] = {}

    def passes(self, step: int | None, counts: Mapping[str, int]) -> bool:
        """Take up how far an attempt came; tell whether that is further than all before it.

        ``step`` is None where nothing confirms it: then one of the other counts must be higher.
        What is saved that was not before is further in any case: it is not made again. So is an
        attempt that began where an earlier one has come to, or saved over what it began with.
        """
        further = (step or 0) > self._step + bool(self._step)
        if step is None:
            further = any(self._is_higher(*each) for each in counts.items())
        saved = [each for each in counts.items() if each[0].startswith((SAVED, READ))]
        further = further or any(self._is_higher(*each) for each in saved)
        self._step = max(self._step, step or 0)
        for kind, count in counts.items():
            self._counts[kind] = max(count, self._counts.get(kind, 0))
        return further

    def _is_higher(self, kind: str, count: int) -> bool:
        before = self._counts.get(kind)
        if before is None:
            return kind == READ or (kind.startswith(SAVED) and bool(self._step))  # the first saved
        return count > before + ONE_OFF.get(kind, 0)
