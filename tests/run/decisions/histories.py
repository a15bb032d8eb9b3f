"""Generated histories: what each attempt does, whatever is decided between them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from random import Random

from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.model import FailureKind, Outcome, Strategy
from rocsteady.run.options import Fallback, RunOptions, StopRule

COUNT = 1000
STARTED = 4_000_000_000.0  # later than any file of the machine that tests
MACHINES = ("no-amd-gpu", "rx7900xtx", "rx7900xt-pair", "mi300x-8", "radeon-780m", "rx6700xt")
REMEDIES = ("loader-inline", "loader-forkserver", "miopen-off", "precision-fp32", "attention-math",
            "sdma-off", "checkpoint-back", "fresh-process", "retry", "cpu")  # fmt: skip
SETTINGS = ("workers", "worker_context", "attention", "miopen", "precision", "micro_batch")
# Those that nothing ends at once come more often: the others make short histories.
LONG = ("hang-in-loader", "hang-in-loader", "hang-in-sync", "hang-in-backward", "hang", "segfault",
        "memory-access-fault", "gpu-reset", "oom-device", "oom-fragmentation", "oom-host", "killed",
        "killed", "network-error", "abort", "unknown", "nan-loss", "checkpoint-corrupt",
        "collective-timeout", "hang-in-collective", "gpu-hang", "loader-worker-died",
        "miopen-failure", "storage-unavailable", "gpu-taken")  # fmt: skip
OTHER_ENDS = (
    Outcome.REPLACED,
    Outcome.LEFT,
    Outcome.LEFT,
    Outcome.REPLACED,
    Outcome.STARTED_OVER,
    Outcome.UNKILLABLE,
    Outcome.STOPPED,
    Outcome.AT_EXIT,
    Outcome.BY_ITSELF,
)
CPU = Fallback(number=2, title="CPU", strategy=Strategy(device="cpu"), rate=0.5)
SMALL = Fallback(
    number=4, title="one GPU", strategy=Strategy(gpus=(0,)), rate=9.0,
    stop=StopRule(within=7200.0, failures=3),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Ending:
    """What one attempt does."""

    outcome: Outcome
    kind: str = ""  # of its failure
    place: str = ""
    made: int = 0
    step_seconds: float = 1.0
    starting: float = 5.0
    saves: tuple[int, ...] = ()  # steps of its own
    saved_failed: str = ""
    confirmed: bool = True
    counts: tuple[tuple[str, int], ...] = ()
    code: int | None = None
    signal: int | None = None
    rank: int | None = None
    seen: tuple[str, ...] = ()
    ineffective: tuple[str, ...] = ()
    workers: int = 0
    precision: str = ""
    split: int | None = None
    beats: bool = True
    needs: float | None = None  # steps a second, that the deadline asks for
    gone: bool = False  # the drive of its checkpoints
    wrote: bool = False
    all_cut_off: bool = False


@dataclass(frozen=True, kw_only=True)
class Case:
    number: int
    machine: str
    options: RunOptions
    scheduler: bool
    due: float | None
    resumes: str  # "checkpoint", "itself" or "not"
    world: int
    deadly: tuple[Strategy, ...]
    helped: tuple[str, ...]
    endings: tuple[Ending, ...]


def case(number: int) -> Case:
    """Return one history; the same number gives the same one."""
    dice = Random(number)  # noqa: S311 - nothing is secret
    resumes = dice.choices(("checkpoint", "itself", "not"), (7, 2, 1))[0]
    loop = dice.random() < 0.25
    likely = dice.choice((0.1, 0.5, 0.8))  # that an attempt fails like the one before
    further = dice.choice((0.1, 0.5, 0.9))  # that it makes steps that were not made before
    usual = dice.randrange(5, 300)
    endings: list[Ending] = []
    for _ in range(dice.randint(1, 8)):
        before = endings[-1] if endings and dice.random() < likely else None
        endings.append(_ending(dice, before, usual, further=further, loop=loop))
    return Case(
        number=number,
        machine=dice.choice(MACHINES),
        options=_options(dice),
        scheduler=dice.random() < 0.15,
        due=STARTED + dice.choice((600.0, 20_000.0)) if dice.random() < 0.1 else None,
        resumes=resumes,
        world=dice.choice((1, 1, 2, 8)),
        deadly=(Strategy(),) if dice.random() < 0.04 else (),
        helped=(dice.choice(REMEDIES),) if dice.random() < 0.1 else (),
        endings=tuple(endings),
    )


def _ending(
    dice: Random, before: Ending | None, usual: int, *, further: float, loop: bool
) -> Ending:
    if before is None and dice.random() < 0.12:
        outcome, kind = dice.choice(OTHER_ENDS), ""
        if outcome is Outcome.UNKILLABLE:
            kind = "hang"
    else:
        kind = before.kind if before and before.kind else _kind(dice)
        hung = kind.startswith("hang")
        outcome = Outcome.HUNG if hung else Outcome.BY_ITSELF
    made = usual if dice.random() < 0.4 else dice.randrange(usual) if dice.random() > further else 0
    made = made or (dice.randrange(1, 2 * usual) if dice.random() < 0.8 else 0)
    every = dice.choice((0, 10, 10, 50))
    saves = tuple(range(every, made + 1, every)) if every else ()
    crash = outcome is Outcome.BY_ITSELF and bool(kind)
    signal = dice.choice((None, None, 6, 9, 11)) if crash else None
    seen: tuple[str, ...] = ()
    if kind == FailureKind.SCRIPT_ERROR and dice.random() < 0.6:
        path = dice.choice(("data/1.bin", "/proc/none.bin"))
        seen = (f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'",)
    return Ending(
        outcome=outcome,
        kind=kind,
        place=before.place if before else dice.choice(("", "train.py:9 step", "data.py:4 get")),
        made=made,
        step_seconds=dice.choice((0.2, 1.0, 4.0)),
        starting=dice.choice((1.0, 8.0, 40.0)),
        saves=saves[-5:],
        saved_failed="/proc/ckpt/last.pt" if dice.random() < 0.03 else "",
        confirmed=dice.random() < 0.85,
        counts=(("printed", made),) if dice.random() < 0.3 else (),
        code=None if signal or kind.startswith("hang") else (1 if crash else 0),
        signal=signal or (15 if kind.startswith("hang") else None),
        rank=dice.choice((None, 0, 1)),
        seen=seen,
        ineffective=(dice.choice(SETTINGS),) if dice.random() < 0.12 else (),
        workers=dice.choice((0, 2, 8)),
        precision=dice.choice(("", "fp32", "bf16", "fp16")),
        split=dice.choice((0, 1, 8, 32)) if loop else None,
        beats=dice.random() < 0.9,
        needs=dice.choice((0.1, 3.0)) if dice.random() < 0.08 else None,
        gone=dice.random() < 0.02,
        wrote=bool(saves) or dice.random() < 0.1,
        all_cut_off=dice.random() < 0.02,
    )


def _kind(dice: Random) -> str:
    if dice.random() < 0.8:
        return dice.choice(LONG)
    return dice.choice(sorted(load_failures().kinds))


def _options(dice: Random) -> RunOptions:
    def some(share: float) -> bool:
        return dice.random() < share

    plan = some(0.2)
    return RunOptions(
        max_attempts=dice.randint(1, 5) if some(0.06) else None,
        give_up_after=timedelta(seconds=dice.choice((0, 60, 3600))) if some(0.1) else None,
        observe=some(0.02),
        no_remedies=some(0.05),
        allow=tuple(dice.sample(REMEDIES, 3)) if some(0.05) else (),
        deny=tuple(dice.sample(REMEDIES, 2)) if some(0.1) else (),
        also=tuple(dice.sample(REMEDIES, 2)) if some(0.1) else (),
        start_with=("loader-inline",) if some(0.04) else (),
        retry_crashed=some(0.02),
        ranks=3 if some(0.05) else None,
        from_scratch=some(0.1),
        strategy=Strategy(attention="math") if plan else Strategy(),
        stop=StopRule(within=3600.0, failures=2, least=1.0) if plan and some(0.5) else None,
        fallbacks=(CPU, SMALL) if plan else (),
    )
