"""The command line: `odradek COMMAND`, one module of `broker/commands` for each command.

A module is imported when its command is called (or listed by `--help`), so that `odradek stop` does not pay
for the codecs of `odradek topics`. Exit codes are those of `broker.errors`.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence

import click

from odradek.broker import commands
from odradek.broker.errors import INTERRUPTED, OK
from odradek.broker.help_sections import SECTIONS
from odradek.broker.outcome import outcome


class LazyGroup(click.Group):
    """Finds commands by the file name of their module: `console_producer.py` is `console-producer`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        found = (module.name for module in pkgutil.iter_modules(commands.__path__))
        return sorted(name.replace("_", "-") for name in found if not name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"{commands.__name__}.{cmd_name.replace('-', '_')}")
        return getattr(module, "command", None)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """By section; one column of names for all of them."""
        width = max(map(len, self.list_commands(ctx)))
        for title, names in SECTIONS.items():
            found = [(name.ljust(width), self.get_command(ctx, name)) for name in names]
            limit = formatter.width - width - 4
            with formatter.section(title):
                formatter.write_dl([(name, one.get_short_help_str(limit)) for name, one in found if one is not None])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = _nearest(args[0], self.list_commands(ctx))
            if near:
                raise click.UsageError(f"{error.message} Did you mean '{near}'?", ctx) from None
            raise


def _nearest(word: str, known: Sequence[str]) -> str:
    import difflib

    return next(iter(difflib.get_close_matches(word, known, 1)), "")


def _version() -> str:
    from importlib.metadata import version

    return version("odradek")


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"odradek {_version()}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version.",
)
def odradek() -> None:
    """Odradek, a Kafka-compatible message broker.

    \b
    Example:
      odradek start                         a broker on 127.0.0.1:9092, data in ./data
      odradek topics --list --bootstrap-server localhost:9092
    """


def main() -> None:
    """The console script: run a command, exit with its code."""
    sys.exit(outcome(_run))


def _run() -> int:
    """Run a command; returns the exit code of click. Errors of ours pass."""
    try:
        odradek.main(prog_name="odradek", standalone_mode=False)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    return OK
