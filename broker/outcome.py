"""The outcome of a command or a process: its error as one line, and its exit code (broker.errors).

It does not import click, which a broker inside another program does not need; `broker.cli` handles click's errors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from odradek.broker.errors import FAILED, INTERRUPTED, OK, OdradekError


def outcome(run: Callable[[], int | None]) -> int:
    """Call `run`, print its error as one line; returns the exit code, which is that of `run` if it returns one."""
    try:
        return run() or OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except OdradekError as error:
        print(f"odradek: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    except BrokenPipeError:  # `odradek … | head`
        sys.stderr.close()
        return FAILED
