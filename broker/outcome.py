"""The outcome of a command or a process: its error as one line, and its exit code (broker.errors)."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from odradek.broker.errors import FAILED, INTERRUPTED, OK, OdradekError


def outcome(run: Callable[[], object]) -> int:
    """Call `run`, print its error as one line; returns the exit code."""
    try:
        run()
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except OdradekError as error:
        click.echo(f"odradek: {error}", err=True)
        return error.exit_code
    except BrokenPipeError:  # `odradek … | head`
        sys.stderr.close()
        return FAILED
    return OK
