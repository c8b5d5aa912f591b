"""`odradek pipeline`: Spark jobs, a separate program that shares nothing with a broker."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import click

from odradek.broker.errors import OdradekError

_AS_IT_IS = {"ignore_unknown_options": True, "allow_extra_args": True}


@click.command(context_settings=_AS_IT_IS, add_help_option=False)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def command(words: tuple[str, ...]) -> None:
    """Run Spark jobs that archive, restore, stage and audit."""
    asks = not words or bool({"-h", "--help"} & set(words))
    if not asks and find_spec("pyspark") is None:
        raise OdradekError("pipeline: Spark is not installed: pip install 'odradek[spark]'")
    os.execv(sys.executable, [sys.executable, "-m", "odradek.pipeline", *words])
