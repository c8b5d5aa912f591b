"""A program that serves during a block."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .process import die_with_parent, wait_until


@contextmanager
def serving(words: Sequence[str], log_file: Path, answers: Callable[[], bool], seconds: float) -> Iterator[None]:
    """Run the program `words` until the block ends, its output in `log_file`; it dies with the test run.

    The block begins when `answers` does, for which OSError means not yet. AssertionError if the program ends before, or
    does not answer within `seconds`.
    """
    with log_file.open("ab") as log:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent)

    def is_up() -> bool:
        assert process.poll() is None, f"{words[0]} has ended\n{log_file}"
        try:
            return answers()
        except OSError:
            return False

    try:
        wait_until(is_up, seconds, f"{words[0]} answers\n{log_file}")
        yield
    finally:
        process.kill()
        process.wait()
