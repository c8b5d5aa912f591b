"""The one line that says why a job failed: its own error out of all that Spark wraps it in."""

from __future__ import annotations

import re
from typing import Any

from odradek.pipeline.errors import PipelineError

# How Python ends a traceback with an error of ours, wherever Java put that text.
_OURS = re.compile(r"odradek\.pipeline\.errors\.\w+: (.+)")


def cause(error: BaseException) -> str:
    """One line: the text of the innermost PipelineError, or what Spark says first of an error of its own."""
    if isinstance(error, PipelineError):
        return _line(str(error))
    text = _text(error)
    ours = _OURS.findall(text)
    return ours[-1].strip() if ours else _line(text) or type(error).__name__


def _text(error: BaseException) -> str:
    java: Any = getattr(error, "java_exception", None)  # of py4j, whose own text begins with what was called
    return str(java.toString()) if java is not None else str(error)


def _line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
