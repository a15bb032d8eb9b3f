"""A group of commands that suggests the closest one for a name that does not exist."""

from __future__ import annotations

import click

from rocsteady.suggestions import no_such


class CommandGroup(click.Group):
    """A group; older releases of click suggest nothing."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the closest command where there is none of that name."""
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-"):
            ctx.fail(no_such("command", args[0], names, f"To list them: {ctx.command_path} --help"))
        return super().resolve_command(ctx, args)
