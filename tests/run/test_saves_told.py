"""A checkpoint that could not be saved is said once, and so is the next one that could."""

from __future__ import annotations

from rocsteady.hangs.values import Heartbeat
from rocsteady.run.attempt.verdict_messages import VerdictMessages
from rocsteady.run.telling.announcer import Announcer


class Heard(Announcer):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def say(self, text: str, *, style: str = "") -> None:
        del style
        self.lines.append(text)


def beat(save_failed: int | None) -> Heartbeat:
    return Heartbeat(
        pid=1,
        rank=None,
        world=None,
        thread=1,
        step=0,
        beats=0,
        phase="data",
        since=0.0,
        last_step=None,
        ended=False,
        raised=False,
        total=None,
        seconds_in={},
        longest_in={},
        histogram={},
        save_failed=save_failed,
    )


def test_a_failed_save_is_said_once_and_so_is_its_end() -> None:
    heard = Heard()
    teller = VerdictMessages(heard)

    for failed in (None, 1200, 1200, 1300, 1400, None, None, 1600):
        teller.saves([beat(failed), beat(None)])

    assert [line.partition(";")[0] for line in heard.lines] == [
        "the checkpoint of step 1,200 was not saved",
        "saving checkpoints works again.",
        "the checkpoint of step 1,600 was not saved",
    ]
