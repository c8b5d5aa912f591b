"""`odradek check`: verifies the files of a data directory."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from typing import Any

import click

from odradek.broker.errors import FAILED


@click.command(
    "check",
    no_args_is_help=True,
    epilog="Example: odradek check ./data",
)
@click.argument("directories", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False))
@click.option("--deep", is_flag=True, help="Also decode every record, including compressed ones.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line instead of text.")
def command(directories: tuple[str, ...], deep: bool, as_json: bool) -> None:
    """Verify checksums, offsets, indexes, snapshots and checkpoints of log directories or partition directories.

    Prints one line for each fault and changes nothing. Exit code 0 without faults, 1 with any. In a directory that a
    running broker uses, a write in flight may appear as a fault: stop the broker for a reliable result.
    """
    faults = sum(_check(directory, deep, as_json) for directory in directories)
    if sys.stderr.isatty() or not faults:
        click.echo(f"{faults} faults" if faults else "no faults", err=True)
    raise SystemExit(FAILED if faults else 0)


def _check(directory: str, deep: bool, as_json: bool) -> int:
    from odradek.storage.tools import check

    count = 0
    with _progress(check.log_bytes(directory), directory) as bar:
        for fault in check.check(directory, deep=deep, progress=bar.update if bar else None):
            text = json.dumps({"path": str(fault.path), "fault": fault.message}) if as_json else str(fault)
            click.echo(text)
            count += 1
    return count


def _progress(size: int, directory: str) -> Any:
    """A progress bar on standard error, for long checks at a terminal."""
    if not sys.stderr.isatty() or size < 64 << 20:
        return nullcontext()
    return click.progressbar(length=size, label=directory, file=sys.stderr, update_min_steps=1 << 24)
