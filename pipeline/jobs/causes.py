"""The one line that says why a job failed: its own error, unwrapped from Spark's."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable
from typing import Any

from odradek.pipeline.errors import PipelineError

log = logging.getLogger(__name__)

# The last line of a Python traceback with an error of ours, wherever Java put that text.
_OURS = re.compile(r"odradek\.pipeline\.errors\.\w+: (.+)")
_SPARKS = ("pyspark.", "py4j.")


def cause(error: BaseException) -> str:
    """One line: the text of the innermost PipelineError, or the first line of an error of Spark's own."""
    if isinstance(error, PipelineError):
        return _line(str(error))
    text = _text(error)
    ours = _OURS.findall(text)
    return ours[-1].strip() if ours else _line(text) or type(error).__name__


def expected(error: BaseException) -> bool:
    """Whether one line is enough; any other error is a bug in this program."""
    ours = isinstance(error, PipelineError | OSError)
    return ours or type(error).__module__.startswith(_SPARKS) or bool(_OURS.search(_text(error)))


def caused_by(error: BaseException, kind: type[PipelineError]) -> bool:
    """Whether it is such an error of ours, or one with its text in Spark's error."""
    return isinstance(error, kind) or f"{kind.__module__}.{kind.__name__}: " in _text(error)


def one_line_error(function: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
    """Make a function for `foreachBatch` fail with one line.

    Spark searches the text of its error with an expression whose stack grows with the text (4.0:
    StreamExecution.isInterruptionException): a Java stack trace in it kills the stream's thread.
    """

    @functools.wraps(function, updated=())
    def in_one_line(frame: Any, number: int) -> None:
        try:
            function(frame, number)
        except Exception as error:
            if not expected(error):
                log.exception("batch %d", number)
            raise PipelineError(cause(error)) from None

    return in_one_line


def _text(error: BaseException) -> str:
    java: Any = getattr(error, "java_exception", None)  # of py4j, whose own text begins with the call
    return str(java.toString()) if java is not None else str(error)


def _line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
