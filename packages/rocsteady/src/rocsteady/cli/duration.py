"""Durations as options have them."""

from __future__ import annotations

from datetime import timedelta

import click

from rocsteady.run.job.quantities import duration


class Duration(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A duration, such as 90s, 10m or 2h 30m."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Read it, or say how it is written."""
        try:
            return duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
