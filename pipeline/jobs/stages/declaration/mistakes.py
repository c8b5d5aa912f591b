"""Several mistakes in a file, reported at once."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.pipeline.errors import OptionError


class Mistakes(OptionError):
    """One line each; there is at least one."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("; ".join(lines))
        self.lines = tuple(lines)

    @staticmethod
    def check(lines: Sequence[str]) -> None:
        """Raise if there are any."""
        if lines:
            raise Mistakes(lines)
