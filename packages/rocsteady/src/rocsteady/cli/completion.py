"""What the Tab key offers where a run, a rule, a failure or a workaround is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click

from rocsteady.store.run_names import SLUG


def _offering(names: Callable[[], Iterable[str]]) -> Callable[..., list[str]]:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        del ctx, param
        try:
            return [name for name in names() if name.startswith(incomplete)]
        except Exception:  # noqa: BLE001 - a journal or an entry that cannot be read: nothing to offer
            return []

    return complete


def _runs() -> Iterable[str]:
    from rocsteady.cli.project import newest, open_journals  # noqa: PLC0415 - each only for its own

    with open_journals() as journals:
        lines = [line for journal in journals for line in journal.runs()]
    names = [line.run.name for line in sorted(lines, key=newest, reverse=True)]
    return [name for name in names if SLUG.fullmatch(name)]  # the shell would run what is in others


def _rules() -> Iterable[str]:
    from rocsteady.doctor.diagnosis import doctors_knowledge  # noqa: PLC0415

    return sorted(doctors_knowledge().rules)


def _workarounds() -> Iterable[str]:
    from rocsteady.failures.remedy import load_remedies  # noqa: PLC0415

    return sorted(load_remedies())


def _failures() -> Iterable[str]:
    from rocsteady.doctor.knowledge.failures import load_failures  # noqa: PLC0415

    return sorted(load_failures().kinds)


run_names = _offering(_runs)
resumable = _offering(lambda: ("auto", "never", *_runs()))
workaround_names = _offering(_workarounds)
failure_names = _offering(lambda: (*_failures(), *_workarounds(), *_rules()))
